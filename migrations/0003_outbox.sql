-- The outbox: a row inserted here is published to Kafka, whoever inserted it.
-- The binary before this one publishes nothing.

-- A time-ordered id (RFC 9562, UUIDv7) for writers that do not mint their own:
-- 48 bits of milliseconds laid over a random UUIDv4, and its version nibble made 7.
CREATE FUNCTION uuid_v7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_byte(
            substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) || substring(v4 FROM 7),
            6,
            get_byte(v4, 6) & 15 | 112
        ),
        'hex'
    )::uuid
    FROM uuid_send(gen_random_uuid()) AS v4
$$;

CREATE TABLE outbox (
    tenant_id           text COLLATE "C" NOT NULL DEFAULT 'default',
    id                  uuid NOT NULL DEFAULT uuid_v7(),
    -- Drawn after the writer has locked the aggregate, so that within an aggregate it rises in commit order.
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    aggregate_id        text COLLATE "C" NOT NULL,
    aggregate_version   bigint,
    event_type          text COLLATE "C" NOT NULL,
    -- Bytes, not jsonb: what was written is what is published.
    payload             bytea NOT NULL,
    headers             jsonb NOT NULL DEFAULT '{}',
    -- All events of an aggregate are in one bucket, and one relay at a time owns a bucket.
    bucket              smallint NOT NULL GENERATED ALWAYS AS ((hashtextextended(aggregate_id, 0) & 31)::smallint) STORED,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at        timestamptz,
    published_topic     text COLLATE "C",
    published_partition integer,
    published_offset    bigint,
    attempts            integer NOT NULL DEFAULT 0,
    last_error          text,
    parked_at           timestamptz,
    PRIMARY KEY (tenant_id, id)
);

-- The relay's read: the head of each bucket it owns.
CREATE INDEX outbox_pending ON outbox (bucket, seq) WHERE published_at IS NULL AND parked_at IS NULL;
-- Is an aggregate held by a parked row? Few rows, so this index stays tiny.
CREATE INDEX outbox_parked ON outbox (tenant_id, aggregate_id, seq) WHERE parked_at IS NOT NULL;

COMMENT ON COLUMN outbox.published_at IS 'Set only after Kafka acknowledged the event; NULL = still to be published.';
COMMENT ON COLUMN outbox.parked_at IS 'Set when the event can never be sent as it is; it waits for an operator.';

-- Who relays which bucket. The number of rows is the number of buckets, so it cannot disagree with
-- a setting; outbox.bucket is computed with the same number.
CREATE TABLE outbox_buckets (
    bucket       smallint PRIMARY KEY,
    owner        uuid,
    -- Counts the owners a bucket has had: a write with an older epoch comes from a relay that lost it.
    epoch        bigint NOT NULL DEFAULT 0,
    leased_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

INSERT INTO outbox_buckets (bucket) SELECT generate_series(0, 31);

-- The relays that are alive, so that each can work out its fair share of the buckets.
CREATE TABLE outbox_relays (
    id          uuid PRIMARY KEY,
    alive_until timestamptz NOT NULL
) WITH (fillfactor = 50);
