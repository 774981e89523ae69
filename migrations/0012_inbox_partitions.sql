-- The inbox in partitions of a week by the time in the event's id, so that it forgets whole
-- partitions. The previous binary sees the same table, with room for the next four weeks; only an id
-- that is no UUIDv7 has no place any more, and makes it wait until the new binary parks the event.
--
-- There is no DEFAULT partition on purpose: an id that is forgotten has no place either, so that
-- whatever a setting says later it can never look new.

-- The smallest id of a moment: the time is the upper 48 bits of a UUIDv7 (RFC 9562, 5.7).
CREATE FUNCTION uuid_v7_from(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;

-- Weeks since 1970, so that all runs agree where one begins.
CREATE FUNCTION inbox_week(moment timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT to_timestamp(floor(extract(epoch FROM moment) / 604800) * 604800)
$$;

-- The table as it was becomes the first partition, without a copy: the rows stay those of the
-- transactions that wrote them, which is how a requeue knows them.
ALTER TABLE inbox RENAME TO inbox_first;
ALTER INDEX inbox_pkey RENAME TO inbox_first_pkey;

CREATE TABLE inbox (
    consumer     text COLLATE "C" NOT NULL,
    event_id     uuid NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
) PARTITION BY RANGE (event_id);

COMMENT ON TABLE inbox IS 'Written first, in the same transaction as the effect of the event.';

CREATE TABLE inbox_horizon (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    complete_since timestamptz NOT NULL
);
INSERT INTO inbox_horizon (complete_since) VALUES ('-infinity');

COMMENT ON TABLE inbox_horizon IS
    'The ids of events that were written before complete_since are forgotten.';

CREATE TABLE inbox_consumers (
    consumer  text COLLATE "C" PRIMARY KEY,
    retention interval NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE inbox_consumers IS
    'Who needs the inbox, and how far back. An INSERT (or upsert) makes and drops partitions.';

CREATE VIEW inbox_bounds AS
SELECT bound.partition,
       to_timestamp(('x' || left(replace(bound.ends, '-', ''), 12))::bit(48)::bigint / 1000.0) AS ends
FROM (
    SELECT c.oid::regclass::text AS partition,
           substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''(.{36})''\)') AS ends
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'inbox'::regclass
) AS bound;

COMMENT ON VIEW inbox_bounds IS 'The partitions of the inbox, and before which time their ids are.';

-- With the rights of the owner of the schema, because a consumer may neither make nor drop a table.
-- A trigger, so that there is nothing to call with other arguments than the consumer's own row.
CREATE FUNCTION keep_inbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
-- Dropping waits for the running batches, and all other batches wait behind it.
SET lock_timeout = '2s'
AS $$
DECLARE
    weeks_ahead constant interval := '21 days';
    -- A longer gap, after years without a consumer, takes several runs.
    weeks_max   constant integer := 200;
    week        timestamptz;
    cut         timestamptz;
    partition   text;
BEGIN
    -- One at a time: another consumer is just doing it.
    PERFORM FROM inbox_horizon FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;

    SELECT max(ends) INTO STRICT week FROM inbox_bounds;
    FOR n IN 1..weeks_max LOOP
        EXIT WHEN week > clock_timestamp() + weeks_ahead;
        partition := 'inbox_' || to_char(week AT TIME ZONE 'UTC', 'YYYYMMDD');
        EXECUTE format('CREATE TABLE %I (LIKE inbox INCLUDING ALL)', partition);
        -- Unlike CREATE TABLE ... PARTITION OF, this waits for nobody who writes.
        EXECUTE format(
            'ALTER TABLE inbox ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            partition, uuid_v7_from(week), uuid_v7_from(week + interval '7 days')
        );
        week := week + interval '7 days';
    END LOOP;

    -- Who has not been seen for as long as its own window finds nothing there that it applied.
    SELECT inbox_week(clock_timestamp() - max(retention)) INTO cut
    FROM inbox_consumers WHERE seen_at > clock_timestamp() - retention;
    BEGIN
        FOR partition IN SELECT b.partition FROM inbox_bounds b WHERE ends <= cut LOOP
            UPDATE inbox_horizon SET complete_since = greatest(complete_since, cut);
            EXECUTE format('DROP TABLE %s', partition);
        END LOOP;
    EXCEPTION
        -- A long transaction reads them: the next run drops them.
        WHEN lock_not_available THEN NULL;
    END;
    RETURN NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION keep_inbox() FROM PUBLIC;

DO $$
DECLARE
    bound uuid := uuid_v7_from(inbox_week(now()));
    role  text;
BEGIN
    -- Nobody may put a table of his own in the way of the owner's rights.
    EXECUTE format('ALTER FUNCTION keep_inbox() SET search_path = %I, pg_temp', current_schema());
    -- Room for clocks that are ahead, and for what is written before the first new consumer starts.
    IF EXISTS (SELECT FROM inbox_first) THEN
        bound := uuid_v7_from(inbox_week(now()) + interval '14 days');
        DELETE FROM inbox_first WHERE event_id >= bound;
    END IF;
    EXECUTE format(
        'ALTER TABLE inbox ATTACH PARTITION inbox_first FOR VALUES FROM (MINVALUE) TO (%L)', bound
    );
    -- What the table was granted is the new one's; a partition is reached through it.
    FOR role IN SELECT rolname FROM pg_roles WHERE rolname IN (SELECT g.role FROM role_grants g) LOOP
        EXECUTE format('REVOKE ALL ON inbox_first FROM %I', role);
    END LOOP;
END
$$;

CREATE TRIGGER keep_inbox AFTER INSERT ON inbox_consumers
FOR EACH STATEMENT EXECUTE FUNCTION keep_inbox();

-- The first weeks, for nobody yet.
INSERT INTO inbox_consumers SELECT '', interval '0' WHERE false;

-- Rows are nobody's to delete any more.
DELETE FROM role_grants WHERE role = 'oncebox_jobs' AND relation = 'inbox';
INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_consumer', 'inbox_horizon', 'SELECT'),
    ('oncebox_consumer', 'inbox_consumers', 'SELECT'),
    ('oncebox_consumer', 'inbox_consumers', 'INSERT'),
    ('oncebox_consumer', 'inbox_consumers', 'UPDATE (retention, seen_at)'),
    ('oncebox_readonly', 'inbox_bounds', 'SELECT'),
    ('oncebox_readonly', 'inbox_horizon', 'SELECT'),
    ('oncebox_readonly', 'inbox_consumers', 'SELECT');

SELECT grant_to_roles();
