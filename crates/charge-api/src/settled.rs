//! What a stored key means for a command: its answer again, a conflict, not yet finished, or expired.

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
        return Ok(same_command(stored));
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

/// The outcome for the command that the key stands for.
pub fn same_command(stored: StoredKey) -> Outcome {
    match stored.response {
        Some(_) if stored.expired => Outcome::Expired { charge: stored.charge_id },
        Some(response) => Outcome::Replayed(response),
        None => Outcome::InFlight,
    }
}
