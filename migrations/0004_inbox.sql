-- The inbox: an event that a consumer has applied is never applied by it again.
-- The binary before this one consumes nothing.

CREATE TABLE inbox (
    consumer     text COLLATE "C" NOT NULL,
    event_id     uuid NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);

COMMENT ON TABLE inbox IS 'Written first, in the same transaction as the effect of the event.';
