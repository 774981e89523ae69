-- no-transaction
-- The retention job finds expired keys by this index. The binary before this one deletes none and
-- does not miss it. It says nothing of the state, so that HOT updates of a key's progress stay on.

CREATE INDEX CONCURRENTLY IF NOT EXISTS idempotency_keys_expiry ON idempotency_keys (expires_at);
