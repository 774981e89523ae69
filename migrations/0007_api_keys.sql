-- What the callers of the API prove their tenant with; made and revoked by `oncebox keys`.
-- The previous binary does not look at it: it knows no other way than auth = "disabled".

CREATE TABLE api_keys (
    tenant_id  text COLLATE "C" NOT NULL CHECK (tenant_id ~ '^[a-zA-Z0-9_.-]{1,64}$'),
    -- The part of the key that is no secret: by it a key is found, listed and revoked.
    prefix     text COLLATE "C" NOT NULL,
    -- Of the whole key. It has 256 random bits, so a fast hash is enough: there is nothing to guess.
    sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
    name       text NOT NULL,
    may_write  boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, prefix)
);

-- A caller says its key, not its tenant. Not unique: no constraint spans tenants, and two random
-- prefixes that are alike are told apart by their hashes.
CREATE INDEX api_keys_prefix ON api_keys (prefix);

COMMENT ON TABLE api_keys IS 'The key itself is not kept: it is shown once, when it is made.';
COMMENT ON COLUMN api_keys.expires_at IS 'NULL = never.';
