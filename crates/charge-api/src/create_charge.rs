//! Creating a charge: from a valid command under a key to one of its outcomes.
//!
//! 1. A request whose key is running in this process waits a moment for that one's answer, or as
//!    long as it asks to.
//! 2. Any other goes to the committer, which writes key, charge, answer and event in one statement;
//!    that statement also tells whether the key was there before.

use std::sync::Arc;
use std::time::Duration;

use domain::{
    Charge, ChargeEvent, ChargeId, ChargeStatus, Endpoint, Fingerprint, IdempotencyKey, NewCharge,
    OutboxId, Outcome, TenantId,
};
use jiff::{Timestamp, TimestampRound, Unit};
use store::idempotency_keys::{self, Probe};
use store::key_lock::KeyLock;
use store::outbox::ChargeRecord;
use tokio::time::Instant;
use uuid::Uuid;

use crate::committer::{Committer, Failure};
use crate::in_flight::{End, Entry, InFlight, Operation, Second};
use crate::settled;

const ENDPOINT: Endpoint = Endpoint::CreateCharge;

/// How often a waiting request asks whether another process is done: its commit takes milliseconds,
/// and nobody tells.
const ELSEWHERE_POLL: Duration = Duration::from_millis(50);

/// What creating a charge needs.
#[derive(Clone)]
pub struct Context {
    pub in_flight: InFlight,
    pub committer: Committer,
    pub pool: store::Pool,
    /// How long a second request waits for the first.
    pub in_flight_wait: Duration,
    /// An expired key is known for ever.
    pub tombstones: bool,
}

/// A valid command, with whose it is and the trace it belongs to.
#[derive(Debug, Clone)]
pub struct Command {
    pub tenant: TenantId,
    pub key: IdempotencyKey,
    pub charge: NewCharge,
    /// How long the client wants to wait for a first request that is still running.
    pub wait: Duration,
    /// W3C trace context, to travel with the event.
    pub trace_headers: serde_json::Value,
}

/// Runs until there is an outcome; the caller bounds the time. A caller that goes away does not
/// cancel the write. Whoever waits for another request holds no database connection.
///
/// # Errors
/// [`Failure`] when the command may be sent again under its key.
pub async fn create_charge(context: &Context, command: Command) -> Result<Outcome, Failure> {
    let operation =
        Operation { tenant: command.tenant.clone(), endpoint: ENDPOINT, key: command.key };
    let charge = Arc::new(command.charge.clone());
    let patience = Instant::now() + command.wait;
    loop {
        let outcome = match context.in_flight.enter(&operation, &charge) {
            Entry::First(first) => context.committer.settle(record(&command), first).await?,
            Entry::Second(second) => match join(context, &command, second, patience).await? {
                Some(outcome) => outcome,
                // A first that ended without owning the key says nothing about this command.
                None => continue,
            },
        };
        if outcome != Outcome::InFlight || Instant::now() >= patience {
            return Ok(outcome);
        }
        // The first runs in another process.
        tokio::time::sleep_until(patience.min(Instant::now() + ELSEWHERE_POLL)).await;
    }
}

/// What a running request means for a later one with its key; `None` when it left the key open.
async fn join(
    context: &Context,
    command: &Command,
    mut first: Second,
    patience: Instant,
) -> Result<Option<Outcome>, Failure> {
    let differing = command.charge.differing_members(first.first_charge());
    let soon = Instant::now() + context.in_flight_wait;
    // Another payload is not what the client wants to wait for.
    let until = if differing.is_empty() { soon.max(patience) } else { soon };
    match tokio::time::timeout_at(until, first.end()).await {
        Ok(End::Settled(answer)) if differing.is_empty() => Ok(Some(Outcome::Replayed(answer))),
        Ok(End::Settled(_)) => Ok(Some(Outcome::PayloadConflict { differing })),
        Ok(End::Open) => Ok(None),
        Err(_still_running) if differing.is_empty() => Ok(Some(Outcome::InFlight)),
        // 422 is final for the client, and the first may be the one with the wrong payload, retrying
        // a key that was completed long ago. So the database is asked.
        Err(_still_running) => judge(context, command, differing).await.map(Some),
    }
}

/// The outcome for a command whose key another command uses in this process.
async fn judge(
    context: &Context,
    command: &Command,
    differing: Vec<&'static str>,
) -> Result<Outcome, Failure> {
    let fingerprint = Fingerprint::of_charge(&command.charge);
    let lock = KeyLock::of(&command.tenant, ENDPOINT, command.key, &fingerprint);
    let (tenant, key, tombstones) = (&command.tenant, command.key, context.tombstones);
    let connection = context.pool.get().await.map_err(Failure::from)?;
    match idempotency_keys::probe(&connection, tenant, ENDPOINT, key, lock, tombstones).await? {
        Probe::Stored(stored) => {
            settled::outcome(&connection, tenant, &fingerprint, &command.charge, stored).await
        }
        Probe::SameCommandRuns => Ok(Outcome::InFlight),
        Probe::Free => Ok(Outcome::PayloadConflict { differing }),
    }
}

/// Everything that will be written, ids and answer included: writing it again is then the same write.
#[expect(
    clippy::disallowed_methods,
    reason = "the ids and the time of a charge are minted here; neither decides anything"
)]
fn record(command: &Command) -> ChargeRecord {
    let id = ChargeId(Uuid::now_v7());
    let charge = Charge {
        id,
        amount_cents: command.charge.amount,
        currency: command.charge.currency,
        description: command.charge.description.clone(),
        status: ChargeStatus::Succeeded,
        created_at: to_the_microsecond(Timestamp::now()),
    };
    let event = ChargeEvent::of(&command.tenant, &charge);
    let json = "invariant: these types always serialise";
    ChargeRecord {
        tenant: command.tenant.clone(),
        key: command.key,
        fingerprint: Fingerprint::of_charge(&command.charge),
        charge_id: id,
        charge: command.charge.clone(),
        created_at: charge.created_at,
        location: format!("/charges/{id}"),
        body: serde_json::to_vec(&charge).expect(json),
        outbox_id: OutboxId(Uuid::now_v7()),
        payload: serde_json::to_vec(&event).expect(json),
        headers: command.trace_headers.clone(),
    }
}

/// PostgreSQL keeps microseconds: what is answered now must be what is read later.
fn to_the_microsecond(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Microsecond).mode(jiff::RoundMode::Trunc);
    time.round(round).expect("invariant: truncation stays within range")
}
