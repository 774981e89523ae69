//! What a stored key means for a command: its answer again, a conflict, or not yet finished.

use domain::{Fingerprint, NewCharge, Outcome, TenantId};
use store::Connection;
use store::idempotency_keys::StoredKey;

use crate::committer::Failure;

/// Only fingerprints of one version can be compared; there is only one so far.
pub async fn outcome(
    connection: &Connection,
    tenant: &TenantId,
    fingerprint: &Fingerprint,
    charge: &NewCharge,
    stored: StoredKey,
) -> Result<Outcome, Failure> {
    if stored.fingerprint == *fingerprint {
        return Ok(stored.response.map_or(Outcome::InFlight, Outcome::Replayed));
    }
    // The fingerprint tells that they differ; the charge itself tells in what.
    let first = store::charges::find(connection, tenant, stored.charge_id).await?;
    let differing = first.map_or_else(Vec::new, |first| {
        let first = NewCharge {
            amount: first.amount_cents,
            currency: first.currency,
            description: first.description,
        };
        charge.differing_members(&first)
    });
    Ok(Outcome::PayloadConflict { differing })
}
