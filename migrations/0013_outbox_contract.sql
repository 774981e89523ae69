-- What a row of the outbox must keep to (docs/OUTBOX.md), told to whoever writes it. The binary
-- before this one writes nothing else, and its relay parks what breaks these rules.
--
-- Rows that are not pending are left out of it: a row from before that breaks the contract must be
-- able to be parked, and marking a row costs no look at the rest.

ALTER TABLE outbox
    ADD CONSTRAINT outbox_tenant_id CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR octet_length(tenant_id) BETWEEN 1 AND 255
    ) NOT VALID,
    ADD CONSTRAINT outbox_aggregate_id CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR octet_length(aggregate_id) BETWEEN 1 AND 1024
    ) NOT VALID,
    ADD CONSTRAINT outbox_aggregate_version CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR aggregate_version >= 0
    ) NOT VALID,
    ADD CONSTRAINT outbox_event_type CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR octet_length(event_type) BETWEEN 1 AND 255
    ) NOT VALID,
    -- What a topic takes by default. To publish larger ones, drop it, and raise the topic's
    -- max.message.bytes and the relay's kafka.message_bytes_max.
    ADD CONSTRAINT outbox_payload CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR octet_length(payload) <= 1048576
    ) NOT VALID,
    -- An object of texts under names that every Kafka client can read. It costs 5 µs a row that has
    -- a traceparent; with {1,255} for the + it would be 36.
    ADD CONSTRAINT outbox_headers CHECK (
        published_at IS NOT NULL OR parked_at IS NOT NULL OR headers = '{}' OR (
            jsonb_typeof(headers) = 'object'
            AND octet_length(headers::text) <= 16384
            AND NOT jsonb_path_exists(
                headers,
                'strict $.keyvalue() ? (@.value.type() != "string" || !(@.key like_regex "^[A-Za-z0-9._-]+$"))',
                silent => true
            )
        )
    ) NOT VALID,
    -- The times that RFC 3339 can say. Nobody could read a row with another one.
    ADD CONSTRAINT outbox_created_at CHECK (
        created_at BETWEEN '0001-01-01 00:00:00Z' AND '9999-12-30 00:00:00Z'
    ) NOT VALID;

-- Services that write events of their own: they add rows, and neither read nor change any. What
-- says how far a row is (published_at, attempts, …) is not theirs to give.
INSERT INTO role_grants (role, relation, privilege) VALUES
    ('oncebox_writer', 'outbox', 'INSERT (tenant_id, id, aggregate_id, aggregate_version, event_type, payload, headers)');

SELECT grant_to_roles();
