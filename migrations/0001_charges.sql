-- Charges. The tenant leads every key, so that the schema can be split by tenant.
-- Before this migration there is no schema: no binary runs.

CREATE TABLE charges (
    tenant_id       text COLLATE "C" NOT NULL,
    id              uuid NOT NULL,
    idempotency_key uuid NOT NULL,
    amount_cents    bigint NOT NULL CHECK (amount_cents > 0),
    currency        text COLLATE "C" NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    description     text,
    status          text COLLATE "C" NOT NULL CHECK (status IN ('pending', 'succeeded', 'declined')),
    -- Rises by one with every event of the charge: the order of its events does not
    -- depend on a sequence that all tenants share.
    version         bigint NOT NULL DEFAULT 1 CHECK (version > 0),
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

COMMENT ON TABLE charges IS 'One row per accepted charge; written by charge-api only.';
COMMENT ON COLUMN charges.idempotency_key IS
    'The key the charge was created under. Not unique here: a key is new again once it has expired.';
