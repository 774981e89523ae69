//! The two advisory locks that tell 409 from 422 while the first request is uncommitted.
//!
//! An INSERT behind an open transaction that holds the same key waits, and then finds a completed
//! row: it can answer neither. So each writer tries two transaction-scoped locks first. The lock on
//! the *fingerprint* is refused when the same command is running; the lock on the *key* is then
//! refused only when another command is running under it.

use domain::{Endpoint, Fingerprint, IdempotencyKey, TenantId};
use sha2::{Digest, Sha256};

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
        let scope = Sha256::new()
            .chain_update(tenant.as_str())
            .chain_update([0])
            .chain_update(endpoint.as_str())
            .chain_update([0])
            .chain_update(key.uuid());
        let command = scope
            .clone()
            .chain_update(fingerprint.version().to_be_bytes())
            .chain_update(fingerprint.digest());
        Self { fingerprint: lock_id(command), key: lock_id(scope) }
    }
}

/// 64 bits of the hash: a collision only makes an unrelated pair of requests take turns.
fn lock_id(hash: Sha256) -> i64 {
    let digest = hash.finalize();
    i64::from_be_bytes(digest[..8].try_into().expect("invariant: SHA-256 has 32 bytes"))
}
