//! Which buckets this relay may send from, and until when.
//!
//! The [`Keeper`] renews the leases in the database, takes free buckets up to its share and gives
//! back what is above it. Each relay asks its [`Occupant`] before it reads or sends. A lease is
//! counted from before its renewal was sent and by this process's monotonic clock, and it is used
//! only while a record sent now would be settled before another relay could take the bucket.
//! A bucket is given back once none of its rows is in memory, so a handover duplicates nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::outbox_buckets::{self, Census, Lease};
use store::{Connection, Error};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::metrics::Metrics;
use crate::settings::{RelaySettings, Settings, Sharing};

/// Renewals a lease: several may fail before one is lost, and a bucket whose owner died is free at
/// most an eighth after its lease ran out.
const RENEWALS_PER_LEASE: u32 = 8;

#[derive(Debug)]
struct Held {
    epoch: i64,
    usable_until: Instant,
    giving_up: bool,
    /// The occupants that have none of its rows in memory any more.
    quiet: BTreeSet<usize>,
}

impl Held {
    fn new(lease: &Lease, usable_until: Instant) -> Self {
        Self { epoch: lease.epoch, usable_until, giving_up: false, quiet: BTreeSet::new() }
    }
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<i16, Held>,
    occupants: BTreeSet<usize>,
}

/// The leases of this process, shared between their keeper and the relays.
#[derive(Debug, Default)]
pub struct Leases {
    state: Mutex<State>,
    /// This relay is ending: it takes nothing more.
    closing: AtomicBool,
    /// There are new buckets to read.
    gained: watch::Sender<()>,
    /// There are buckets to give back.
    quieted: Notify,
}

/// One relay of this process and its view of the leases. They all send from the same buckets, each
/// to its own topic, and a bucket is given back once each of them has nothing of it.
#[derive(Debug)]
pub struct Occupant {
    leases: Arc<Leases>,
    number: usize,
    gained: watch::Receiver<()>,
}

impl Occupant {
    pub fn new(leases: &Arc<Leases>) -> Self {
        let mut state = leases.lock();
        let number = state.occupants.len();
        state.occupants.insert(number);
        Self { leases: Arc::clone(leases), number, gained: leases.gained.subscribe() }
    }

    /// The buckets that may be read and sent from now, with their epochs.
    pub fn usable(&self, now: Instant) -> BTreeMap<i16, i64> {
        self.leases.usable(now)
    }

    /// Says which buckets have no rows in memory.
    pub fn report_quiet(&self, is_quiet: impl Fn(i16) -> bool) {
        self.leases.report_quiet(self.number, is_quiet);
    }

    /// Waits until buckets were gained.
    pub async fn gained(&mut self) {
        // The sender lives as long as the leases, which this holds.
        let _ = self.gained.changed().await;
    }

    /// Gives up all buckets of this process, at the end.
    pub fn close(&self) {
        self.leases.close();
    }

    /// This relay has nothing in memory and takes nothing more. Without that word a bucket is kept:
    /// what a relay that was cut off had sent may still arrive.
    pub fn leave(self) {
        self.leases.lock().occupants.remove(&self.number);
        self.leases.quieted.notify_one();
    }
}

impl Leases {
    /// The buckets that may be read and sent from now, with their epochs.
    pub fn usable(&self, now: Instant) -> BTreeMap<i16, i64> {
        let state = self.lock();
        let usable =
            state.held.iter().filter(|(_, held)| !held.giving_up && now < held.usable_until);
        usable.map(|(bucket, held)| (*bucket, held.epoch)).collect()
    }

    fn report_quiet(&self, occupant: usize, is_quiet: impl Fn(i16) -> bool) {
        let mut some = false;
        for (bucket, held) in self.lock().held.iter_mut().filter(|(_, held)| held.giving_up) {
            if is_quiet(*bucket) {
                some |= held.quiet.insert(occupant);
            }
        }
        if some {
            self.quieted.notify_one();
        }
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.give_up(usize::MAX);
    }

    /// What the database says is ours. Returns how many leases were lost.
    fn renewed(&self, leases: &[Lease], usable_until: Instant) -> usize {
        let held = &mut self.lock().held;
        let before = held.len();
        held.retain(|bucket, held| {
            leases.iter().any(|lease| lease.bucket == *bucket && lease.epoch == held.epoch)
        });
        let lost = before - held.len();
        for lease in leases {
            held.entry(lease.bucket)
                .and_modify(|held| held.usable_until = usable_until)
                // Claimed by a statement whose answer was lost.
                .or_insert_with(|| Held::new(lease, usable_until));
        }
        lost
    }

    fn claimed(&self, leases: &[Lease], usable_until: Instant) {
        let new = leases.iter().map(|lease| (lease.bucket, Held::new(lease, usable_until)));
        self.lock().held.extend(new);
        if !leases.is_empty() {
            self.gained.send_replace(());
        }
    }

    /// Marks exactly so many buckets to be given up, those first that were marked before.
    fn give_up(&self, count: usize) {
        let mut state = self.lock();
        let mut order: Vec<&mut Held> = state.held.values_mut().collect();
        order.sort_by_key(|held| !held.giving_up);
        for (index, held) in order.into_iter().enumerate() {
            held.giving_up = index < count;
            if !held.giving_up {
                held.quiet.clear();
            }
        }
    }

    fn quiet(&self) -> Vec<Lease> {
        let state = self.lock();
        let quiet = state
            .held
            .iter()
            .filter(|(_, held)| held.giving_up && state.occupants.is_subset(&held.quiet));
        quiet.map(|(bucket, held)| Lease { bucket: *bucket, epoch: held.epoch }).collect()
    }

    fn released(&self, leases: &[Lease]) {
        let held = &mut self.lock().held;
        for lease in leases {
            held.remove(&lease.bucket);
        }
    }

    fn len(&self) -> usize {
        self.lock().held.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst a bucket that the next renewal corrects.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the leases. It has a connection of its own: a slow read must not cost a lease.
pub struct Keeper {
    pub relay: Uuid,
    lease: Duration,
    sharing: Sharing,
    /// How long before its end a lease is no longer used: as long as a record may take.
    hold_back: Duration,
    metrics: Metrics,
}

impl Keeper {
    pub fn new(relay: Uuid, settings: &Settings, metrics: Metrics) -> Self {
        let RelaySettings { lease, sharing, .. } = settings.relay;
        Self { relay, lease, sharing, hold_back: settings.kafka.message_timeout, metrics }
    }

    /// Renews, then takes, gives up or gives back.
    ///
    /// # Errors
    /// The database's; what was not renewed runs out by itself.
    pub async fn run_once(&self, connection: &Connection, leases: &Leases) -> Result<(), Error> {
        let single = self.sharing == Sharing::Single;
        let census = outbox_buckets::report(connection, self.relay, self.lease, single).await?;
        let usable_until = self.usable_until();
        let renewed = outbox_buckets::renew(connection, self.relay, self.lease).await?;
        let lost = leases.renewed(&renewed, usable_until);
        if lost > 0 {
            self.metrics.leases_lost.inc_by(lost as u64);
            tracing::warn!(lost, "leases ran out and other relays took the buckets");
        }

        let share = match leases.closing.load(Ordering::Relaxed) {
            true => 0,
            false => share(self.sharing, census),
        };
        let held = leases.len();
        leases.give_up(held.saturating_sub(share));
        self.release_quiet(connection, leases).await?;
        if held < share {
            let usable_until = self.usable_until();
            let missing = i64::try_from(share - held).unwrap_or(i64::MAX);
            let claimed =
                outbox_buckets::claim(connection, self.relay, self.lease, missing).await?;
            leases.claimed(&claimed, usable_until);
            if !claimed.is_empty() {
                tracing::info!(
                    claimed = claimed.len(),
                    held,
                    relays = census.relays,
                    "buckets claimed"
                );
            }
        }
        self.measure(leases);
        Ok(())
    }

    /// For a renewal that is about to be sent.
    fn usable_until(&self) -> Instant {
        Instant::now() + self.lease.saturating_sub(self.hold_back)
    }

    async fn release_quiet(&self, connection: &Connection, leases: &Leases) -> Result<(), Error> {
        let quiet = leases.quiet();
        if quiet.is_empty() {
            return Ok(());
        }
        outbox_buckets::release(connection, self.relay, &quiet).await?;
        leases.released(&quiet);
        tracing::info!(released = quiet.len(), "buckets released");
        Ok(())
    }

    /// Gives back all buckets of which no relay has anything in memory, and takes the relay off the list, so
    /// that the others need not wait for its leases to run out.
    ///
    /// # Errors
    /// The database's; then the leases run out by themselves.
    pub async fn leave(&self, connection: &Connection, leases: &Leases) -> Result<(), Error> {
        leases.close();
        // Also what a claim brought whose answer nobody was there to read.
        let all = outbox_buckets::renew(connection, self.relay, self.lease).await?;
        leases.renewed(&all, Instant::now());
        leases.close();
        self.release_quiet(connection, leases).await?;
        self.measure(leases);
        outbox_buckets::leave(connection, self.relay).await
    }

    /// Sets the gauge; also when the database is away and leases run out unheard.
    pub fn measure(&self, leases: &Leases) {
        let usable = leases.usable(Instant::now()).len();
        self.metrics.buckets_owned.set(i64::try_from(usable).unwrap_or(i64::MAX));
    }

    /// Waits for the next renewal, or for something to give back.
    pub async fn pause(&self, leases: &Leases) {
        let interval = self.lease / RENEWALS_PER_LEASE;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = leases.quieted.notified() => {}
        }
    }
}

/// Fair shares leave no bucket over: the last relay to come may get fewer.
fn share(sharing: Sharing, census: Census) -> usize {
    let relays = census.relays.max(1);
    let buckets = match sharing {
        Sharing::Fair => (census.buckets + relays - 1) / relays,
        Sharing::Single if census.stands_by => 0,
        Sharing::Single => census.buckets,
    };
    usize::try_from(buckets).unwrap_or_default()
}

#[cfg(test)]
mod tests;
