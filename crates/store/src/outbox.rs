//! The outbox, from the one statement that writes an event with its charge to the marks of the relay.

pub mod hold;
pub mod operate;
pub mod relay;
pub mod retention;
pub mod verify;

use domain::{ChargeId, Endpoint, Fingerprint, IdempotencyKey, NewCharge, OutboxId, TenantId};
use jiff::Timestamp;
use postgres_types::ToSql;
use uuid::Uuid;

use crate::idempotency_keys::{Lifetime, StoredKey};
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
// 1. `request`: each key is looked up without a lock. OFFSET 0 makes that a probe of the primary key:
//    as a join it could be planned as one scan of all keys while the table is empty. A key that is
//    not in use is claimed by the two locks of `key_lock`; CASE keeps their order. An unfinished
//    key is in use however old it is.
// 2. `key_row`: the unique constraint is the judge. An expired key is taken over, unless $6 makes it
//    a tombstone; one that somebody else has just committed is left alone, and its record is `Unseen`.
// 3. charge and event for the keys that were written, and only for those.
// What a single charge costs is mostly the start of the executor, so each part counts.
const RECORD_CHARGES: Statement = Statement::new(
    "record charges",
    "WITH request AS MATERIALIZED (
         SELECT r.*, stored.*,
                CASE WHEN stored.charge_id IS NOT NULL THEN 'stored'
                     WHEN NOT pg_try_advisory_xact_lock(r.fingerprint_lock) THEN 'same'
                     WHEN NOT pg_try_advisory_xact_lock(r.key_lock) THEN 'other'
                     ELSE 'mine'
                END AS claim
         FROM unnest($3::charge_record[]) WITH ORDINALITY AS r (
             tenant_id, key, fingerprint, fingerprint_lock, key_lock, new_charge_id,
             amount_cents, currency, description, created_at, location, body,
             outbox_id, payload, headers, position
         )
         LEFT JOIN LATERAL (
             SELECT k.fingerprint_version, k.fingerprint AS stored_fingerprint, k.charge_id,
                    k.response_status, k.response_content_type, k.response_location, k.response_body,
                    ($6 AND k.state = 'completed' AND k.expires_at <= clock_timestamp()) IS TRUE
                        AS expired
             FROM idempotency_keys k
             WHERE k.tenant_id = r.tenant_id AND k.endpoint = $1 AND k.key = r.key
               AND ($6::boolean OR k.expires_at IS NULL OR k.expires_at > clock_timestamp()
                    OR k.state <> 'completed')
             OFFSET 0
         ) AS stored ON true
     ),
     key_row AS (
         INSERT INTO idempotency_keys AS k (
             tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id,
             response_status, response_content_type, response_location, response_body, expires_at
         )
         SELECT tenant_id, $1, key, fingerprint, $4, 'completed', new_charge_id,
                201, 'application/json', location, body,
                clock_timestamp() + make_interval(secs => $2)
         FROM request
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
          WHERE NOT $6 AND k.expires_at <= clock_timestamp() AND k.state = 'completed'
         RETURNING k.charge_id AS new_charge_id
     ),
     charge_row AS (
         INSERT INTO charges (
             tenant_id, id, idempotency_key, amount_cents, currency, description, status, created_at
         )
         SELECT tenant_id, new_charge_id, key, amount_cents, currency, description, 'succeeded',
                created_at
         FROM request JOIN key_row USING (new_charge_id)
     ),
     outbox_row AS (
         INSERT INTO outbox (
             tenant_id, id, aggregate_id, aggregate_version, event_type, payload, headers
         )
         SELECT tenant_id, outbox_id, new_charge_id::text, 1, $5, payload, headers
         FROM request JOIN key_row USING (new_charge_id)
     )
     SELECT r.fingerprint_version, r.stored_fingerprint, r.charge_id,
            r.response_status, r.response_content_type, r.response_location, r.response_body,
            r.expired, r.claim, w.new_charge_id IS NOT NULL
     FROM request r
     LEFT JOIN key_row w USING (new_charge_id)
     ORDER BY r.position",
);

/// Writes each charge with its key, its answer and its event, all or nothing, in one statement that
/// is one transaction. The answer has one entry a record, in the order of `records`.
///
/// No two records may have the same key: the caller resolves those in its own process. Running it
/// again with the same records is safe: what was written is then `Stored` under its own charge id.
/// A key that has expired is written anew, or is `Stored` as a tombstone, as `lifetime` says.
///
/// # Errors
/// [`Error::Statement`]: nothing was written, unless the connection ended, and then it is unknown.
pub async fn record_charges(
    connection: &Connection,
    endpoint: Endpoint,
    lifetime: Lifetime,
    records: &[&ChargeRecord],
) -> Result<Vec<Recorded>, Error> {
    let rows: Vec<Row<'_>> = records.iter().map(|record| Row::of(endpoint, record)).collect();
    let retention = lifetime.retention.map(|duration| duration.as_secs_f64());
    let answers = connection
        .query(
            &RECORD_CHARGES,
            &[
                &endpoint.as_str(),
                &retention,
                &rows,
                &Fingerprint::VERSION,
                &domain::ChargeEvent::CREATED,
                &lifetime.tombstone,
            ],
        )
        .await?;
    answers.iter().map(read).collect()
}

fn read(row: &tokio_postgres::Row) -> Result<Recorded, Error> {
    if let Some(stored) = StoredKey::read(row, 0)? {
        return Ok(Recorded::Stored(stored));
    }
    Ok(match row.get(8) {
        Some("same") => Recorded::SameCommandRuns,
        Some("other") => Recorded::OtherCommandRuns,
        _ if row.get(9) => Recorded::Written,
        _ => Recorded::Unseen,
    })
}

/// A record as the statement takes it: the type of the schema, member by member.
#[derive(Debug, ToSql)]
#[postgres(name = "charge_record")]
struct Row<'a> {
    tenant_id: &'a str,
    key: Uuid,
    fingerprint: &'a [u8],
    fingerprint_lock: i64,
    key_lock: i64,
    charge_id: Uuid,
    amount_cents: i64,
    currency: &'a str,
    description: Option<&'a str>,
    created_at: Timestamp,
    location: &'a str,
    body: &'a [u8],
    outbox_id: Uuid,
    payload: &'a [u8],
    headers: &'a serde_json::Value,
}

impl<'a> Row<'a> {
    fn of(endpoint: Endpoint, record: &'a ChargeRecord) -> Self {
        let lock = KeyLock::of(&record.tenant, endpoint, record.key, &record.fingerprint);
        Self {
            tenant_id: record.tenant.as_str(),
            key: record.key.uuid(),
            fingerprint: record.fingerprint.digest(),
            fingerprint_lock: lock.fingerprint,
            key_lock: lock.key,
            charge_id: record.charge_id.0,
            amount_cents: record.charge.amount.get(),
            currency: record.charge.currency.as_str(),
            description: record.charge.description.as_ref().map(|text| text.as_str()),
            created_at: record.created_at,
            location: &record.location,
            body: &record.body,
            outbox_id: record.outbox_id.0,
            payload: &record.payload,
            headers: &record.headers,
        }
    }
}
