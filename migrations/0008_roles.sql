-- Least privilege: a group role for each kind of process, and what each may do to which table.
-- The previous binary sees no difference: who owns the schema goes on as before.
--
-- The roles cannot log in: an operator makes a login and puts it into one of them. Roles belong to
-- the whole cluster, and other databases of it may be migrated at this moment. So what a role may do
-- is kept here as rows, and granted by a function that makes what is missing, as far as its caller
-- may, and can be run again. There are no default privileges: a new table is closed to everybody
-- until the migration that makes it adds its rows and calls the function.

CREATE TABLE role_grants (
    role      text COLLATE "C" NOT NULL,
    privilege text COLLATE "C" NOT NULL,
    relation  text COLLATE "C" NOT NULL,
    PRIMARY KEY (role, relation, privilege)
);

COMMENT ON TABLE role_grants IS
    'What grant_to_roles() grants: add rows in the migration that makes a table, then call it.';

-- Returns what could not be done: then the caller lacks CREATEROLE, and the migration goes on
-- without. Whoever has it makes the roles, and the owner calls this again.
CREATE FUNCTION grant_to_roles() RETURNS SETOF text
LANGUAGE plpgsql
AS $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN SELECT DISTINCT role FROM role_grants ORDER BY role LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted.role);
            EXCEPTION
                -- Made by the migration of another database at the same moment.
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE WARNING 'role % is missing, and % may not create it: let a superuser run '
                        'CREATE ROLE % NOLOGIN, then SELECT grant_to_roles() as the owner',
                        wanted.role, current_user, wanted.role;
                    RETURN NEXT 'CREATE ROLE ' || quote_ident(wanted.role) || ' NOLOGIN';
            END;
        END IF;
    END LOOP;

    FOR wanted IN
        SELECT g.role, string_agg(g.privilege, ', ') AS privileges, g.relation
        FROM role_grants g
        JOIN pg_roles r ON r.rolname = g.role
        GROUP BY g.role, g.relation
        ORDER BY g.role, g.relation
    LOOP
        EXECUTE format('GRANT %s ON %I TO %I', wanted.privileges, wanted.relation, wanted.role);
    END LOOP;
    FOR wanted IN
        SELECT DISTINCT g.role FROM role_grants g JOIN pg_roles r ON r.rolname = g.role
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), wanted.role);
    END LOOP;

    -- The relay's gauge of the oldest transaction looks at the sessions of others.
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'oncebox_relay')
        AND NOT pg_has_role('oncebox_relay', 'pg_read_all_stats', 'MEMBER')
    THEN
        BEGIN
            GRANT pg_read_all_stats TO oncebox_relay;
        EXCEPTION
            WHEN unique_violation THEN NULL;
            WHEN insufficient_privilege THEN
                RAISE WARNING 'oncebox_relay sees its own sessions only: let a superuser run '
                    'GRANT pg_read_all_stats TO oncebox_relay';
                RETURN NEXT 'GRANT pg_read_all_stats TO oncebox_relay';
        END;
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION grant_to_roles() FROM PUBLIC;

-- A lock on a row (FOR UPDATE) needs the right to update one of its columns.
INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_api', 'schema_migrations', 'SELECT'),
    ('oncebox_api', 'api_keys', 'SELECT'),
    ('oncebox_api', 'idempotency_keys', 'SELECT'),
    ('oncebox_api', 'idempotency_keys', 'INSERT'),
    ('oncebox_api', 'idempotency_keys', 'UPDATE'),
    ('oncebox_api', 'charges', 'SELECT'),
    ('oncebox_api', 'charges', 'INSERT'),
    ('oncebox_api', 'outbox', 'INSERT'),

    ('oncebox_relay', 'schema_migrations', 'SELECT'),
    ('oncebox_relay', 'outbox', 'SELECT'),
    ('oncebox_relay', 'outbox', 'UPDATE (published_at, published_topic, published_partition, published_offset, attempts, last_error, parked_at)'),
    ('oncebox_relay', 'outbox_buckets', 'SELECT'),
    ('oncebox_relay', 'outbox_buckets', 'UPDATE (owner, epoch, leased_until)'),
    ('oncebox_relay', 'outbox_relays', 'SELECT'),
    ('oncebox_relay', 'outbox_relays', 'INSERT'),
    ('oncebox_relay', 'outbox_relays', 'UPDATE'),
    ('oncebox_relay', 'outbox_relays', 'DELETE'),

    ('oncebox_consumer', 'schema_migrations', 'SELECT'),
    ('oncebox_consumer', 'inbox', 'SELECT'),
    ('oncebox_consumer', 'inbox', 'INSERT'),
    ('oncebox_consumer', 'receipts', 'INSERT'),
    ('oncebox_consumer', 'daily_totals', 'SELECT'),
    ('oncebox_consumer', 'daily_totals', 'INSERT'),
    ('oncebox_consumer', 'daily_totals', 'UPDATE (charges, amount_cents)'),
    ('oncebox_consumer', 'dead_letters', 'SELECT'),
    ('oncebox_consumer', 'dead_letters', 'INSERT'),

    ('oncebox_jobs', 'schema_migrations', 'SELECT'),
    ('oncebox_jobs', 'idempotency_keys', 'SELECT'),
    ('oncebox_jobs', 'idempotency_keys', 'UPDATE (expires_at)'),
    ('oncebox_jobs', 'idempotency_keys', 'DELETE'),
    ('oncebox_jobs', 'charges', 'SELECT'),
    ('oncebox_jobs', 'outbox', 'SELECT'),
    ('oncebox_jobs', 'outbox', 'UPDATE (published_at)'),
    ('oncebox_jobs', 'outbox', 'DELETE'),
    ('oncebox_jobs', 'inbox', 'SELECT'),
    ('oncebox_jobs', 'inbox', 'UPDATE (processed_at)'),
    ('oncebox_jobs', 'inbox', 'DELETE');

-- Everything but what proves who a caller is.
INSERT INTO role_grants (role, relation, privilege)
SELECT 'oncebox_readonly', relation, 'SELECT'
FROM unnest(ARRAY[
    'schema_migrations', 'idempotency_keys', 'charges', 'outbox', 'outbox_buckets', 'outbox_relays',
    'inbox', 'receipts', 'daily_totals', 'dead_letters', 'role_grants'
]) AS relation;
INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_readonly', 'api_keys', 'SELECT (tenant_id, prefix, name, may_write, created_at, expires_at, revoked_at)');

SELECT grant_to_roles();
