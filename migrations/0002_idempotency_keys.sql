-- One row per (tenant, endpoint, key) that has been accepted, with the answer to replay.
-- The binary before this one has no idempotency keys.

CREATE TABLE idempotency_keys (
    tenant_id             text COLLATE "C" NOT NULL,
    endpoint              text COLLATE "C" NOT NULL,
    key                   uuid NOT NULL,
    fingerprint           bytea NOT NULL CHECK (octet_length(fingerprint) = 32),
    fingerprint_version   smallint NOT NULL,
    state                 text COLLATE "C" NOT NULL CHECK (state IN ('in_progress', 'completed', 'failed')),
    charge_id             uuid NOT NULL,
    response_status       smallint,
    response_content_type text COLLATE "C",
    response_location     text COLLATE "C",
    response_body         bytea,
    created_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at            timestamptz,
    PRIMARY KEY (tenant_id, endpoint, key),
    CONSTRAINT idempotency_keys_completed_has_response CHECK (
        state <> 'completed'
        OR (response_status IS NOT NULL AND response_content_type IS NOT NULL AND response_body IS NOT NULL)
    )
);

-- No index mentions the state: one would turn HOT updates of a key's progress off.
COMMENT ON COLUMN idempotency_keys.expires_at IS 'When the key is new again; NULL = never.';
COMMENT ON COLUMN idempotency_keys.response_body IS 'The bytes of the first answer, replayed as they are.';
