-- What operators changed by hand. The binary before this one has no operator's tool.

CREATE TABLE operator_actions (
    id            uuid PRIMARY KEY DEFAULT uuid_v7(),
    operator      text NOT NULL CHECK (operator <> ''),
    -- Whom the database knows, whatever name was given.
    database_user text NOT NULL DEFAULT session_user,
    action        text COLLATE "C" NOT NULL,
    arguments     jsonb NOT NULL,
    rows_changed  bigint NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE operator_actions IS 'Written in the transaction of the change; never updated.';

-- Events that an operator decided never to publish. They leave the outbox, so that there
-- published_at keeps its one meaning and nothing waits behind them.
CREATE TABLE outbox_discarded (
    tenant_id         text COLLATE "C" NOT NULL,
    id                uuid NOT NULL,
    aggregate_id      text COLLATE "C" NOT NULL,
    aggregate_version bigint,
    event_type        text COLLATE "C" NOT NULL,
    payload           bytea NOT NULL,
    headers           jsonb NOT NULL,
    created_at        timestamptz NOT NULL,
    attempts          integer NOT NULL,
    last_error        text,
    discarded_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

COMMENT ON TABLE outbox_discarded IS 'An event with its payload, as it was when it was discarded.';

INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_jobs', 'outbox_discarded', 'SELECT'),
    ('oncebox_readonly', 'operator_actions', 'SELECT'),
    ('oncebox_readonly', 'outbox_discarded', 'SELECT');

SELECT grant_to_roles();
