//! The outbox, from the one statement that writes an event with its charge to the marks of the relay.

pub mod hold;
pub mod operate;
pub mod relay;

use std::time::Duration;

use domain::{ChargeId, Endpoint, Fingerprint, IdempotencyKey, NewCharge, OutboxId, TenantId};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::idempotency_keys::StoredKey;
use crate::key_lock::KeyLock;
use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&RECORD_CHARGES];

/// A charge with everything that is written with it.
#[derive(Debug, Clone)]
pub struct ChargeRecord {
    pub tenant: TenantId,
    pub key: IdempotencyKey,
    pub fingerprint: Fingerprint,
    pub charge_id: ChargeId,
    pub charge: NewCharge,
    pub created_at: Timestamp,
    pub location: String,
    /// The answer of the first request, to be replayed as it is.
    pub body: Vec<u8>,
    pub outbox_id: OutboxId,
    pub payload: Vec<u8>,
    /// W3C trace context for the event: header names and values.
    pub headers: serde_json::Value,
}

/// What became of one record.
#[derive(Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Key, charge, answer and event are committed.
    Written,
    /// The key was there before.
    Stored(StoredKey),
    /// Another process runs the same command.
    SameCommandRuns,
    /// Another process runs another command under the key.
    OtherCommandRuns,
    /// Neither written nor seen: somebody committed the key after this statement's snapshot was
    /// taken. A new statement sees it.
    Unseen,
}

// The parts of the statement see one snapshot and none of each other's rows, so each part hands its
// rows on by RETURNING or by name:
// 1. `stored`: keys in use, read without a lock. OFFSET 0 makes each a probe of the primary key:
//    as a join it could be planned as one scan of all keys while the table is empty.
// 2. `claimed`: for the rest, the two locks of `key_lock`. CASE keeps their order.
// 3. `key_row`: the unique constraint is the judge. An expired key is taken over; one that somebody
//    else has just committed is left alone, and its record is `Unseen`.
// 4. charge and event for the keys that were written, and only for those.
const RECORD_CHARGES: Statement = Statement::new(
    "record charges",
    "WITH request AS MATERIALIZED (
         SELECT *
         FROM unnest(
             $3::text[], $4::uuid[], $5::bytea[], $6::bigint[], $7::bigint[], $8::uuid[],
             $9::bigint[], $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::bytea[],
             $15::uuid[], $16::bytea[], $17::jsonb[]
         ) WITH ORDINALITY AS r (
             tenant_id, key, fingerprint, fingerprint_lock, key_lock, charge_id,
             amount_cents, currency, description, created_at, location, body,
             outbox_id, payload, headers, position
         )
     ),
     stored AS MATERIALIZED (
         SELECT r.position, k.fingerprint_version, k.fingerprint, k.charge_id,
                k.response_status, k.response_content_type, k.response_location, k.response_body
         FROM request r
         CROSS JOIN LATERAL (
             SELECT *
             FROM idempotency_keys k
             WHERE k.tenant_id = r.tenant_id AND k.endpoint = $1 AND k.key = r.key
               AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
             OFFSET 0
         ) AS k
     ),
     claimed AS MATERIALIZED (
         SELECT r.*,
                CASE WHEN NOT pg_try_advisory_xact_lock(r.fingerprint_lock) THEN 'same'
                     WHEN NOT pg_try_advisory_xact_lock(r.key_lock) THEN 'other'
                     ELSE 'mine'
                END AS claim
         FROM request r
         WHERE NOT EXISTS (SELECT FROM stored s WHERE s.position = r.position)
     ),
     key_row AS (
         INSERT INTO idempotency_keys AS k (
             tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id,
             response_status, response_content_type, response_location, response_body, expires_at
         )
         SELECT tenant_id, $1, key, fingerprint, $18, 'completed', charge_id,
                201, 'application/json', location, body,
                clock_timestamp() + make_interval(secs => $2)
         FROM claimed
         WHERE claim = 'mine'
         ON CONFLICT (tenant_id, endpoint, key) DO UPDATE
            SET fingerprint = excluded.fingerprint,
                fingerprint_version = excluded.fingerprint_version,
                state = excluded.state,
                charge_id = excluded.charge_id,
                response_status = excluded.response_status,
                response_content_type = excluded.response_content_type,
                response_location = excluded.response_location,
                response_body = excluded.response_body,
                created_at = excluded.created_at,
                expires_at = excluded.expires_at
          WHERE k.expires_at <= clock_timestamp() AND k.state = 'completed'
         RETURNING k.charge_id
     ),
     written AS MATERIALIZED (
         SELECT claimed.* FROM claimed JOIN key_row USING (charge_id)
     ),
     charge_row AS (
         INSERT INTO charges (
             tenant_id, id, idempotency_key, amount_cents, currency, description, status, created_at
         )
         SELECT tenant_id, charge_id, key, amount_cents, currency, description, 'succeeded', created_at
         FROM written
     ),
     outbox_row AS (
         INSERT INTO outbox (
             tenant_id, id, aggregate_id, aggregate_version, event_type, payload, headers
         )
         SELECT tenant_id, outbox_id, charge_id::text, 1, $19, payload, headers
         FROM written
         ORDER BY position
     )
     SELECT s.fingerprint_version, s.fingerprint, s.charge_id,
            s.response_status, s.response_content_type, s.response_location, s.response_body,
            c.claim, w.position IS NOT NULL
     FROM request r
     LEFT JOIN stored s ON s.position = r.position
     LEFT JOIN claimed c ON c.position = r.position
     LEFT JOIN written w ON w.position = r.position
     ORDER BY r.position",
);

/// Writes each charge with its key, its answer and its event, all or nothing, in one statement that
/// is one transaction. The answer has one entry a record, in the order of `records`.
///
/// No two records may have the same key: the caller resolves those in its own process. Running it
/// again with the same records is safe: what was written is then `Stored` under its own charge id.
/// `retention` is how long the keys are kept; `None` is for ever.
///
/// # Errors
/// [`Error::Statement`]: nothing was written, unless the connection ended, and then it is unknown.
pub async fn record_charges(
    connection: &Connection,
    endpoint: Endpoint,
    retention: Option<Duration>,
    records: &[&ChargeRecord],
) -> Result<Vec<Recorded>, Error> {
    let column = Columns::of(endpoint, records);
    let rows = connection
        .query(
            &RECORD_CHARGES,
            &[
                &endpoint.as_str(),
                &retention.map(|duration| duration.as_secs_f64()),
                &column.tenants,
                &column.keys,
                &column.fingerprints,
                &column.fingerprint_locks,
                &column.key_locks,
                &column.charge_ids,
                &column.amounts,
                &column.currencies,
                &column.descriptions,
                &column.created_ats,
                &column.locations,
                &column.bodies,
                &column.outbox_ids,
                &column.payloads,
                &column.headers,
                &Fingerprint::VERSION,
                &domain::ChargeEvent::CREATED,
            ],
        )
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Recorded, Error> {
    if let Some(stored) = StoredKey::read(row, 0)? {
        return Ok(Recorded::Stored(stored));
    }
    Ok(match row.get(7) {
        Some("same") => Recorded::SameCommandRuns,
        Some("other") => Recorded::OtherCommandRuns,
        _ if row.get(8) => Recorded::Written,
        _ => Recorded::Unseen,
    })
}

/// The records turned into the arrays that the statement takes.
#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<&'a str>,
    keys: Vec<Uuid>,
    fingerprints: Vec<&'a [u8]>,
    fingerprint_locks: Vec<i64>,
    key_locks: Vec<i64>,
    charge_ids: Vec<Uuid>,
    amounts: Vec<i64>,
    currencies: Vec<&'a str>,
    descriptions: Vec<Option<&'a str>>,
    created_ats: Vec<Timestamp>,
    locations: Vec<&'a str>,
    bodies: Vec<&'a [u8]>,
    outbox_ids: Vec<Uuid>,
    payloads: Vec<&'a [u8]>,
    headers: Vec<&'a serde_json::Value>,
}

impl<'a> Columns<'a> {
    fn of(endpoint: Endpoint, records: &[&'a ChargeRecord]) -> Self {
        let mut columns = Self::default();
        for record in records {
            let lock = KeyLock::of(&record.tenant, endpoint, record.key, &record.fingerprint);
            columns.tenants.push(record.tenant.as_str());
            columns.keys.push(record.key.uuid());
            columns.fingerprints.push(record.fingerprint.digest());
            columns.fingerprint_locks.push(lock.fingerprint);
            columns.key_locks.push(lock.key);
            columns.charge_ids.push(record.charge_id.0);
            columns.amounts.push(record.charge.amount.get());
            columns.currencies.push(record.charge.currency.as_str());
            columns.descriptions.push(record.charge.description.as_ref().map(|text| text.as_str()));
            columns.created_ats.push(record.created_at);
            columns.locations.push(&record.location);
            columns.bodies.push(&record.body);
            columns.outbox_ids.push(record.outbox_id.0);
            columns.payloads.push(&record.payload);
            columns.headers.push(&record.headers);
        }
        columns
    }
}
