//! Which buckets this relay may send from, and until when.
//!
//! The [`Keeper`] renews the leases in the database, takes free buckets up to its share and gives
//! back what is above it. The relay asks [`Leases`] before it reads or sends. A lease is
//! counted from before its renewal was sent and by this process's monotonic clock, and it is used
//! only while a record sent now would be settled before another relay could take the bucket.
//! A bucket is given back once none of its rows is in memory, so a handover duplicates nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::outbox_buckets::{self, Census, Lease};
use store::{Connection, Error};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::metrics::Metrics;
use crate::settings::{RelaySettings, Settings, Sharing};

/// Renewals a lease: several may fail before one is lost, and a bucket whose owner died is free at
/// most an eighth after its lease ran out.
const RENEWALS_PER_LEASE: u32 = 8;

#[derive(Debug, Clone, Copy)]
struct Held {
    epoch: i64,
    usable_until: Instant,
    giving_up: bool,
    /// None of its rows is in memory any more.
    quiet: bool,
}

/// The leases of this relay, shared between its keeper and its loop.
#[derive(Debug, Default)]
pub struct Leases {
    held: Mutex<BTreeMap<i16, Held>>,
    /// This relay is ending: it takes nothing more.
    closing: AtomicBool,
    /// There are new buckets to read.
    gained: Notify,
    /// There are buckets to give back.
    quieted: Notify,
}

impl Leases {
    /// The buckets that may be read and sent from now, with their epochs.
    pub fn usable(&self, now: Instant) -> BTreeMap<i16, i64> {
        let held = self.lock();
        let usable = held.iter().filter(|(_, held)| !held.giving_up && now < held.usable_until);
        usable.map(|(bucket, held)| (*bucket, held.epoch)).collect()
    }

    /// The loop says which buckets have no rows in memory.
    pub fn report_quiet(&self, is_quiet: impl Fn(i16) -> bool) {
        let mut some = false;
        for (bucket, held) in self.lock().iter_mut().filter(|(_, held)| held.giving_up) {
            if !held.quiet && is_quiet(*bucket) {
                held.quiet = true;
                some = true;
            }
        }
        if some {
            self.quieted.notify_one();
        }
    }

    /// Waits until buckets were gained.
    pub async fn gained(&self) {
        self.gained.notified().await;
    }

    /// Gives up all buckets, at the end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.give_up(usize::MAX);
    }

    /// What the database says is ours. Returns how many leases were lost.
    fn renewed(&self, leases: &[Lease], usable_until: Instant) -> usize {
        let mut held = self.lock();
        let before = held.len();
        held.retain(|bucket, held| {
            leases.iter().any(|lease| lease.bucket == *bucket && lease.epoch == held.epoch)
        });
        let lost = before - held.len();
        for lease in leases {
            held.entry(lease.bucket)
                .and_modify(|held| held.usable_until = usable_until)
                // Claimed by a statement whose answer was lost.
                .or_insert(Held {
                    epoch: lease.epoch,
                    usable_until,
                    giving_up: false,
                    quiet: false,
                });
        }
        lost
    }

    fn claimed(&self, leases: &[Lease], usable_until: Instant) {
        let mut held = self.lock();
        for lease in leases {
            let new = Held { epoch: lease.epoch, usable_until, giving_up: false, quiet: false };
            held.insert(lease.bucket, new);
        }
        drop(held);
        if !leases.is_empty() {
            self.gained.notify_one();
        }
    }

    /// Marks exactly so many buckets to be given up, those first that were marked before.
    fn give_up(&self, count: usize) {
        let mut held = self.lock();
        let mut order: Vec<&mut Held> = held.values_mut().collect();
        order.sort_by_key(|held| !held.giving_up);
        for (index, held) in order.into_iter().enumerate() {
            held.giving_up = index < count;
            held.quiet &= held.giving_up;
        }
    }

    fn quiet(&self) -> Vec<Lease> {
        let held = self.lock();
        let quiet = held.iter().filter(|(_, held)| held.quiet);
        quiet.map(|(bucket, held)| Lease { bucket: *bucket, epoch: held.epoch }).collect()
    }

    fn released(&self, leases: &[Lease]) {
        let mut held = self.lock();
        for lease in leases {
            held.remove(&lease.bucket);
        }
    }

    fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i16, Held>> {
        // A panic elsewhere leaves at worst a bucket that the next renewal corrects.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Gives back all buckets of which nothing is in memory, and takes the relay off the list, so
    /// that the others need not wait for its leases to run out.
    ///
    /// # Errors
    /// The database's; then the leases run out by themselves.
    pub async fn leave(
        &self,
        connection: &Connection,
        leases: &Leases,
        is_quiet: impl Fn(i16) -> bool,
    ) -> Result<(), Error> {
        leases.close();
        // Also what a claim brought whose answer nobody was there to read.
        let all = outbox_buckets::renew(connection, self.relay, self.lease).await?;
        leases.renewed(&all, Instant::now());
        leases.close();
        leases.report_quiet(is_quiet);
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
