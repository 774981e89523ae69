-- How far each dead letter is on its way to the dead-letter topic. The binary before this one neither
-- reads nor writes this table; its letters get their rows all the same.
--
-- Not columns of dead_letters: a letter is written once, with its inbox row, and a requeue knows that
-- row by the transaction that wrote both. An update of the letter would make it another one's.

CREATE TABLE dead_letter_publications (
    letter_id    uuid PRIMARY KEY REFERENCES dead_letters ON DELETE CASCADE,
    consumer     text COLLATE "C" NOT NULL,
    not_before   timestamptz NOT NULL DEFAULT '-infinity',
    attempts     integer NOT NULL DEFAULT 0,
    last_error   text,
    published_at timestamptz
);

COMMENT ON TABLE dead_letter_publications IS
    'A row a dead letter, written with it and gone with it, whether a topic is set or not.';
COMMENT ON COLUMN dead_letter_publications.not_before IS
    'Nobody publishes the letter before then: it is leased, or was put off after a failure.';

CREATE INDEX dead_letter_publications_waiting ON dead_letter_publications (consumer, letter_id)
    WHERE published_at IS NULL;

-- With the owner's rights: whoever may write a letter need not be granted anything here.
CREATE FUNCTION add_dead_letter_publication() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
AS $$
BEGIN
    INSERT INTO dead_letter_publications (letter_id, consumer) VALUES (NEW.id, NEW.consumer);
    RETURN NULL;
END
$$;

REVOKE EXECUTE ON FUNCTION add_dead_letter_publication() FROM PUBLIC;

DO $$
BEGIN
    -- Nobody may put a table of his own in the way of the owner's rights.
    EXECUTE format(
        'ALTER FUNCTION add_dead_letter_publication() SET search_path = %I, pg_temp',
        current_schema()
    );
END
$$;

CREATE TRIGGER add_publication AFTER INSERT ON dead_letters
FOR EACH ROW EXECUTE FUNCTION add_dead_letter_publication();

-- After the trigger, whose lock keeps new letters out until this is committed.
INSERT INTO dead_letter_publications (letter_id, consumer) SELECT id, consumer FROM dead_letters;

INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_consumer', 'dead_letter_publications', 'SELECT'),
    ('oncebox_consumer', 'dead_letter_publications', 'UPDATE (not_before, attempts, last_error, published_at)'),
    ('oncebox_readonly', 'dead_letter_publications', 'SELECT');

SELECT grant_to_roles();
