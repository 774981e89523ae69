-- no-transaction
-- Published rows are deleted after a while (docs/decisions/0009). The binary before this one deletes
-- none and does not miss any of this.

-- Up to when rows may have been deleted: whoever misses one from before then learns nothing by it.
CREATE TABLE IF NOT EXISTS outbox_retention (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Every published row that is gone was published before this.
    removed_before timestamptz NOT NULL
);

INSERT INTO outbox_retention (removed_before) VALUES ('-infinity') ON CONFLICT DO NOTHING;

-- A batch that is marked shares its time, so an entry here is a few bytes. What an earlier run that
-- was cut off left behind is invalid, hence the drop.
DROP INDEX CONCURRENTLY IF EXISTS outbox_published;

CREATE INDEX CONCURRENTLY outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL;

-- Every row is updated once and deleted once. At the default of 0.2 a fifth of the table is dead
-- before vacuum comes.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.05);

INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_relay', 'outbox', 'DELETE'),
    ('oncebox_relay', 'outbox_retention', 'SELECT'),
    ('oncebox_relay', 'outbox_retention', 'UPDATE (removed_before)'),
    ('oncebox_jobs', 'outbox_retention', 'SELECT'),
    ('oncebox_readonly', 'outbox_retention', 'SELECT')
ON CONFLICT DO NOTHING;

SELECT grant_to_roles();
