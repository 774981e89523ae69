//! The idempotency_keys table. Keys are written by `outbox::record_charges`, with what they stand for.

use std::time::Duration;

use domain::{ChargeId, Endpoint, Fingerprint, IdempotencyKey, StoredResponse, TenantId};
use tokio_postgres::Row;

use crate::key_lock::KeyLock;
use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&PROBE, &COUNT];

/// How long a key lasts, and what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// `None` is for ever.
    pub retention: Option<Duration>,
    /// An expired key goes on being known, and is never new again.
    pub tombstone: bool,
}

/// A key that is in use, or a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub fingerprint: Fingerprint,
    pub charge_id: ChargeId,
    /// `None` while the operation is unfinished.
    pub response: Option<StoredResponse>,
    /// It is a tombstone: completed, past its time, and kept.
    pub expired: bool,
}

impl StoredKey {
    /// Reads the columns fingerprint_version, fingerprint, charge_id, response_status,
    /// response_content_type, response_location, response_body and whether it is a tombstone from
    /// `first` on; `None` when the row has no key.
    pub(crate) fn read(row: &Row, first: usize) -> Result<Option<Self>, Error> {
        let Some(version) = row.get::<_, Option<i16>>(first) else { return Ok(None) };
        let unreadable = Error::Unreadable { what: "an idempotency key" };
        let Some(fingerprint) = Fingerprint::from_stored(version, row.get(first + 1)) else {
            return Err(unreadable);
        };
        let response = match row.get::<_, Option<i16>>(first + 3) {
            None => None,
            Some(status) => Some(StoredResponse {
                status: u16::try_from(status).map_err(|_| unreadable)?,
                content_type: row.get(first + 4),
                location: row.get(first + 5),
                body: row.get(first + 6),
            }),
        };
        let (charge_id, expired) = (ChargeId(row.get(first + 2)), row.get(first + 7));
        Ok(Some(Self { fingerprint, charge_id, response, expired }))
    }
}

/// What a look at a key shows, without writing anything.
#[derive(Debug, PartialEq, Eq)]
pub enum Probe {
    Stored(StoredKey),
    /// The same command is running in another process.
    SameCommandRuns,
    /// No row, and nobody else runs this command.
    Free,
}

const PROBE: Statement = Statement::new(
    "look a key up",
    "SELECT fingerprint_version, fingerprint, charge_id,
            response_status, response_content_type, response_location, response_body,
            ($5 AND state = 'completed' AND expires_at <= clock_timestamp()) IS TRUE,
            CASE WHEN fingerprint IS NULL THEN pg_try_advisory_xact_lock($4) END
     FROM (VALUES (1)) AS one
     LEFT JOIN idempotency_keys
       ON tenant_id = $1 AND endpoint = $2 AND key = $3
      AND ($5::boolean OR expires_at IS NULL OR expires_at > clock_timestamp()
           OR state <> 'completed')",
);

/// Looks a key up; the lock it tries is given back at once. With `tombstones`, an expired key counts.
///
/// # Errors
/// [`Error::Statement`], or [`Error::Unreadable`] for a row that a newer version wrote.
pub async fn probe(
    connection: &Connection,
    tenant: &TenantId,
    endpoint: Endpoint,
    key: IdempotencyKey,
    lock: KeyLock,
    tombstones: bool,
) -> Result<Probe, Error> {
    let (tenant, endpoint, key) = (tenant.as_str(), endpoint.as_str(), key.uuid());
    let rows = connection
        .query(&PROBE, &[&tenant, &endpoint, &key, &lock.fingerprint, &tombstones])
        .await?;
    let row = rows.first().expect("invariant: the statement always yields one row");
    if let Some(stored) = StoredKey::read(row, 0)? {
        return Ok(Probe::Stored(stored));
    }
    let locked: Option<bool> = row.get(8);
    Ok(if locked == Some(false) { Probe::SameCommandRuns } else { Probe::Free })
}

// An index-only scan of one tenant's part of the primary key. An expired key counts until it is
// removed: a condition on its time would read every row.
const COUNT: Statement = Statement::new(
    "count a tenant's keys",
    "SELECT count(*)::integer
     FROM (SELECT FROM idempotency_keys WHERE tenant_id = $1 LIMIT $2) AS kept",
);

/// How many keys of the tenant are kept, counted up to `max`.
///
/// # Errors
/// [`Error::Statement`].
pub async fn count(connection: &Connection, tenant: &TenantId, max: u32) -> Result<u32, Error> {
    let row = connection.query_opt(&COUNT, &[&tenant.as_str(), &i64::from(max)]).await?;
    let count: i32 = row.expect("invariant: an aggregate yields one row").get(0);
    Ok(u32::try_from(count).unwrap_or(0))
}
