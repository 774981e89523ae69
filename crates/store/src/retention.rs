//! The end of idempotency keys: those that expired and are completed go, in small batches.
//!
//! An unfinished key never goes, however old: what became of its operation is recovery's to find out.

use jiff::Timestamp;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&DELETE_EXPIRED];

/// What one batch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub deleted: i64,
    /// By the database's clock.
    pub at: Timestamp,
}

// SKIP LOCKED: any number may run at once, and a key that a request is just taking over is left to
// it. now(), not clock_timestamp(): a volatile function cannot bound the scan of
// idempotency_keys_expiry.
const DELETE_EXPIRED: Statement = Statement::new(
    "delete expired idempotency keys",
    "WITH expired AS MATERIALIZED (
         SELECT tenant_id, endpoint, key
         FROM idempotency_keys
         WHERE expires_at <= now() AND state = 'completed'
         ORDER BY expires_at
         LIMIT $1
         FOR UPDATE SKIP LOCKED
     ),
     deleted AS (
         DELETE FROM idempotency_keys k
         USING expired e
         WHERE k.tenant_id = e.tenant_id AND k.endpoint = e.endpoint AND k.key = e.key
         RETURNING 1
     )
     SELECT count(*), clock_timestamp() FROM deleted",
);

/// Deletes at most `keys_max` completed keys that have expired, the oldest first.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn delete_expired(connection: &Connection, keys_max: i64) -> Result<Batch, Error> {
    let row = connection.query_opt(&DELETE_EXPIRED, &[&keys_max]).await?;
    let row = row.ok_or(Error::Unreadable { what: "a batch of retention" })?;
    Ok(Batch { deleted: row.get(0), at: row.get(1) })
}
