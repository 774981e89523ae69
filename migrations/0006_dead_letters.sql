-- What a consumer could not apply, kept whole until an operator decides.
-- The binary before this one stops at such a record; it does not read or write this table.

CREATE TABLE dead_letters (
    id               uuid PRIMARY KEY DEFAULT uuid_v7(),
    consumer         text COLLATE "C" NOT NULL,
    source_topic     text COLLATE "C" NOT NULL,
    source_partition integer NOT NULL,
    source_offset    bigint NOT NULL,
    source_timestamp bigint NOT NULL,
    event_id         uuid,
    key              bytea,
    headers          jsonb NOT NULL,
    payload          bytea,
    reason           text NOT NULL,
    attempts         integer NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The timestamp is part of a record's place: offsets start again when a topic is made anew, and
    -- then another record with an old offset must not be taken for the one that is here.
    CONSTRAINT dead_letters_source
        UNIQUE (consumer, source_topic, source_partition, source_offset, source_timestamp)
);

COMMENT ON TABLE dead_letters IS 'Written in the transaction that would have applied the event.';
COMMENT ON COLUMN dead_letters.source_timestamp IS 'Kafka''s, in milliseconds; -1 = the record has none.';
COMMENT ON COLUMN dead_letters.event_id IS 'NULL = the record does not say which event it is.';
COMMENT ON COLUMN dead_letters.headers IS
    'Array of {"name", "value"}, in order; "hex" instead of "value" for what jsonb cannot hold as text.';
