//! The two advisory locks that tell 409 from 422 while the first request is uncommitted.
//!
//! An INSERT behind an open transaction that holds the same key waits, and then finds a completed
//! row: it can answer neither. So each writer tries two transaction-scoped locks first. The lock on
//! the *fingerprint* is refused when the same command is running; the lock on the *key* is then
//! refused only when another command is running under it.

use domain::{Endpoint, Fingerprint, IdempotencyKey, TenantId};
use sha2::{Digest, Sha256};

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&IS_HELD];

/// The ids of the two locks of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLock {
    pub fingerprint: i64,
    pub key: i64,
}

impl KeyLock {
    pub fn of(
        tenant: &TenantId,
        endpoint: Endpoint,
        key: IdempotencyKey,
        fingerprint: &Fingerprint,
    ) -> Self {
        let scope = scope(tenant, endpoint, key);
        let command = scope
            .clone()
            .chain_update(fingerprint.version().to_be_bytes())
            .chain_update(fingerprint.digest());
        Self { fingerprint: lock_id(command), key: lock_id(scope) }
    }
}

fn scope(tenant: &TenantId, endpoint: Endpoint, key: IdempotencyKey) -> Sha256 {
    Sha256::new()
        .chain_update(tenant.as_str())
        .chain_update([0])
        .chain_update(endpoint.as_str())
        .chain_update([0])
        .chain_update(key.uuid())
}

// Looked at, not tried: a lock that is taken for a moment would refuse a writer in that moment.
// PostgreSQL shows a 64-bit lock as its two halves.
const IS_HELD: Statement = Statement::new(
    "look at the lock of a key",
    "SELECT EXISTS (
         SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND objsubid = 1 AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND classid::bigint = ($1::bigint >> 32) & 4294967295
           AND objid::bigint = $1::bigint & 4294967295
     )",
);

/// Is some process writing under the key at this moment? Once this says no, a new statement sees what
/// was written before.
///
/// # Errors
/// [`Error::Statement`].
pub async fn is_held(
    connection: &Connection,
    tenant: &TenantId,
    endpoint: Endpoint,
    key: IdempotencyKey,
) -> Result<bool, Error> {
    let lock = lock_id(scope(tenant, endpoint, key));
    let row = connection.query_opt(&IS_HELD, &[&lock]).await?;
    Ok(row.expect("invariant: the statement always yields one row").get(0))
}

/// 64 bits of the hash: a collision only makes an unrelated pair of requests take turns.
fn lock_id(hash: Sha256) -> i64 {
    let digest = hash.finalize();
    i64::from_be_bytes(digest[..8].try_into().expect("invariant: SHA-256 has 32 bytes"))
}
