-- The sample consumer's effect. Nothing here is unique per event or per charge on purpose: only the
-- inbox stands between a second copy of an event and a wrong total, so a fault in it shows.

CREATE TABLE receipts (
    tenant_id    text COLLATE "C" NOT NULL,
    id           uuid NOT NULL,
    event_id     uuid NOT NULL,
    charge_id    uuid NOT NULL,
    amount_cents bigint NOT NULL,
    currency     text COLLATE "C" NOT NULL,
    issued_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE daily_totals (
    tenant_id    text COLLATE "C" NOT NULL,
    day          date NOT NULL,
    currency     text COLLATE "C" NOT NULL,
    charges      bigint NOT NULL,
    -- numeric: the sum of many capped amounts must not overflow.
    amount_cents numeric(38, 0) NOT NULL,
    PRIMARY KEY (tenant_id, day, currency)
);

COMMENT ON COLUMN daily_totals.day IS 'The UTC day the charge was created on, from the event.';
