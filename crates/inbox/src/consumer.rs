//! One effect per event id: receive → record in the inbox and apply, in ONE transaction → commit →
//! store the offset. A crash anywhere in between delivers the records again, and the inbox tells
//! which of them were applied.
//!
//! Nothing here knows what an event means; that is the [`Handler`]'s business.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use store::inbox::{self, Entry};
use store::{Connection, Pool, Transaction};
use telemetry::Condition;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::dead_letter::DeadLetter;
use crate::event::{Event, Record};
use crate::failure::Failure;
use crate::handler::Handler;
use crate::lanes::{Item, Lane, Lanes};
use crate::metrics::{Metrics, Outcome, RetryCause};
use crate::sequence::SequenceGuard;
use crate::subscription::{self, Received, Subscription};

/// How long to wait for a record before the client is polled anew; it bounds what a lost wake-up of
/// the client costs, and is far below every limit of Kafka's.
const IDLE_WAIT: Duration = Duration::from_millis(500);
/// After a database that is away: soon enough to catch up at once, seldom enough to do no harm.
const OUTAGE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), most: Duration::from_secs(2) };
/// After an event that fails: what others lock or change meanwhile takes milliseconds, and its
/// partition waits.
const EVENT_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(50), most: Duration::from_secs(1) };
/// How long a failed batch is taken apart, event by event, before the client is polled again.
const SINGLES_LIMIT: Duration = Duration::from_secs(5);

pub struct Consumer<H> {
    /// Under which events are recorded in the inbox.
    pub name: String,
    pub pool: Pool,
    pub handler: H,
    pub metrics: Metrics,
    /// Holds while events can be applied.
    pub applying: Condition,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most records of a partition in one transaction.
    pub batch: usize,
    /// Most partitions worked on at the same time.
    pub concurrency: usize,
    /// How often an event is tried that may be the cause of its failure.
    pub attempts: u32,
    pub transaction_timeout: Duration,
    /// How old an event may be that is applied.
    pub window: Duration,
}

/// What became of a lane's work.
struct Settled {
    partition: i32,
    /// Everything up to this offset is committed.
    through: Option<i64>,
    rest: Option<Lane>,
}

impl<H: Handler> Consumer<H> {
    /// Consumes until `stop`. What is in work then is finished and committed, and the group is left.
    ///
    /// # Errors
    /// [`subscription::Error`] when the Kafka client cannot go on.
    pub async fn run(
        &self,
        mut subscription: Subscription,
        stop: CancellationToken,
    ) -> Result<(), subscription::Error> {
        let mut lanes = Lanes::default();
        let mut guard = SequenceGuard::default();
        self.applying.set(true);
        let mut result = Ok(());
        while result.is_ok() && !stop.is_cancelled() {
            let wait = lanes.next_due().map_or(IDLE_WAIT, |due| {
                due.saturating_duration_since(Instant::now()).min(IDLE_WAIT)
            });
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                received = self.receive(&mut subscription, &mut lanes, &mut guard, wait) => {
                    result = received;
                }
            }
            if result.is_ok() && !stop.is_cancelled() {
                self.settle_due(&subscription, &mut lanes).await;
            }
        }
        subscription.leave().await;
        result
    }

    /// Takes over what is there, until a lane has a batch; waits only while there is nothing.
    async fn receive(
        &self,
        subscription: &mut Subscription,
        lanes: &mut Lanes,
        guard: &mut SequenceGuard,
        wait: Duration,
    ) -> Result<(), subscription::Error> {
        let mut next = subscription.next(wait).await?;
        while let Some(received) = next {
            match received {
                Received::Record(record) => {
                    if let Some(anomaly) = guard.observe(&record) {
                        self.metrics.anomaly(anomaly);
                    }
                    if lanes.push(record) >= self.limits.batch {
                        break;
                    }
                }
                Received::Revoked(partitions) => {
                    lanes.forget(&partitions);
                    guard.forget(&partitions);
                }
            }
            next = subscription.ready()?;
        }
        Ok(())
    }

    /// Works on the lanes that are due, side by side, and stores the offset of what is committed.
    /// The client is not polled meanwhile, so no partition can be taken away.
    async fn settle_due(&self, subscription: &Subscription, lanes: &mut Lanes) {
        let due = lanes.take_due(Instant::now(), self.limits.concurrency);
        if due.is_empty() {
            return;
        }
        let mut settling = stream::iter(due.into_iter().map(|lane| self.settle(lane)))
            .buffer_unordered(self.limits.concurrency);
        while let Some(settled) = settling.next().await {
            if let Some(offset) = settled.through {
                subscription.store_offset(settled.partition, offset);
            }
            if let Some(rest) = settled.rest {
                lanes.put_back(rest);
            }
        }
        let held = lanes.held(Instant::now());
        self.metrics.waiting_partitions.set(i64::try_from(held.len()).unwrap_or(i64::MAX));
        subscription.pause_only(&held);
        if !lanes.in_outage() {
            self.applying.set(true);
        }
    }

    /// A batch in one transaction. If that fails, its records one by one, so that a bad one never
    /// fails its neighbours.
    async fn settle(&self, mut lane: Lane) -> Settled {
        let started = Instant::now();
        let mut through = None;
        while !lane.items.is_empty() {
            let one_by_one = lane.singly || lane.items.len() == 1;
            let count = if one_by_one { 1 } else { lane.items.len().min(self.limits.batch) };
            match self.apply(&lane.items.make_contiguous()[..count]).await {
                Ok(()) => {
                    through =
                        lane.items.drain(..count).next_back().map(|item| item.record().offset);
                    lane.attempts = 0;
                    lane.outages = 0;
                    if !one_by_one || started.elapsed() > SINGLES_LIMIT {
                        lane.due = Instant::now();
                        break;
                    }
                }
                Err(Failure::Outage(reason)) => {
                    lane.outages = lane.outages.saturating_add(1);
                    lane.due = Instant::now() + OUTAGE_BACKOFF.after(lane.outages);
                    self.metrics.put_off(RetryCause::Outage);
                    self.applying.set_false(reason);
                    break;
                }
                Err(_) if !one_by_one => lane.singly = true,
                Err(Failure::Refused(reason)) => give_up(&mut lane, &reason),
                Err(Failure::Suspect(reason)) => {
                    lane.outages = 0;
                    lane.attempts += 1;
                    if lane.attempts < self.limits.attempts {
                        lane.due = Instant::now() + EVENT_BACKOFF.after(lane.attempts);
                        self.metrics.put_off(RetryCause::Event);
                        break;
                    }
                    give_up(&mut lane, &reason);
                }
            }
        }
        let partition = lane.partition;
        Settled { partition, through, rest: (!lane.items.is_empty()).then_some(lane) }
    }

    /// The transaction: all of it is committed, or nothing.
    async fn apply(&self, items: &[Item]) -> Result<(), Failure> {
        let mut connection = self.pool.get().await?;
        let limit = self.limits.transaction_timeout;
        // A batch is made of many traces; what its first event says is enough to find the others'.
        let first = items.first().map(Item::record);
        let span = tracing::info_span!(
            "apply",
            partition = first.map(|record| record.partition),
            offset = first.map(|record| record.offset),
            records = items.len(),
            traceparent = first.and_then(Record::created_in),
        );
        let transaction = self.transaction(&mut connection, items).instrument(span);
        let applied = timeout(limit, transaction).await;
        let result = applied.unwrap_or_else(|_| {
            Err(Failure::Outage(format!("no end of the transaction within {limit:?}")))
        });
        if matches!(result, Err(Failure::Outage(_))) {
            connection.discard();
        }
        // A dead letter has no fault of its own left: what keeps it from being written is an outage.
        let only_letters = items.iter().all(|item| item.dead_letter().is_some());
        result.map_err(|failure| if only_letters { failure.into_outage() } else { failure })
    }

    async fn transaction(
        &self,
        connection: &mut Connection,
        items: &[Item],
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let tx = connection.transaction().await?;

        // 1. The inbox, before anything else: a copy in another consumer waits here, and is a
        //    duplicate once this transaction has committed.
        //    What it cannot tell of is neither recorded nor applied. A failure is never the fault
        //    of an event: an id without a partition waits until there is one.
        let entries: Vec<Entry> = items.iter().filter_map(Item::entry).collect();
        let recorded = inbox::record(&tx, &self.name, &entries, self.limits.window)
            .await
            .map_err(|error| Failure::from(error).into_outage())?;
        let recorded_at = Instant::now();

        // 2. The effect of the events that are new, each once: copies in the batch are folded.
        let untold = |item: &Item| {
            item.settles_event().is_some_and(|event| recorded.untold.contains(&event))
        };
        let mut new = recorded.new;
        let fresh: Vec<&Item> = items
            .iter()
            .filter(|item| is_new(item, &mut new) || item.dead_letter().is_some() && untold(item))
            .collect();
        let events: Vec<&Event> = fresh.iter().filter_map(|item| item.event()).collect();
        if !events.is_empty() {
            let handled = AssertUnwindSafe(self.handler.handle(&tx, &events)).catch_unwind().await;
            handled.map_err(|_panic| Failure::Suspect("the handler panicked".into()))??;
        }

        // 3. What cannot be applied is put aside.
        let refused = fresh.iter().filter_map(|item| item.dead_letter());
        let letters = self.put_aside(&tx, refused).await?;
        let wait = items.iter().filter(|item| untold(item)).filter_map(Item::event);
        let wait: Vec<_> =
            wait.map(|event| DeadLetter::parked(event, self.limits.window)).collect();
        let parked = self.put_aside(&tx, wait.iter()).await?;

        tx.commit().await?;

        self.metrics.handle_seconds.observe(started.elapsed().as_secs_f64());
        self.metrics.settled(Outcome::Processed, events.len());
        self.metrics.settled(Outcome::DeadLettered, letters.len());
        self.metrics.settled(Outcome::Parked, parked.len());
        let new = events.len() + letters.len() + parked.len();
        self.metrics.settled(Outcome::Duplicate, items.len() - new);
        let since_recorded = recorded_at.elapsed().as_secs_f64();
        for written in events.iter().filter_map(|event| event.envelope.time) {
            // Both times are the database's.
            let until_recorded =
                recorded.at.map_or(0.0, |at| at.duration_since(written).as_secs_f64());
            self.metrics.commit_to_effect_seconds.observe(until_recorded.max(0.0) + since_recorded);
        }
        letters.into_iter().chain(parked).for_each(DeadLetter::log);
        Ok(())
    }

    /// Writes dead letters; returns those that were not there from an earlier delivery.
    async fn put_aside<'a>(
        &self,
        tx: &Transaction<'_>,
        letters: impl Iterator<Item = &'a DeadLetter>,
    ) -> Result<Vec<&'a DeadLetter>, store::Error> {
        let mut written = Vec::new();
        for letter in letters {
            if letter.write(tx, &self.name).await? {
                written.push(letter);
            }
        }
        Ok(written)
    }
}

/// Takes the id out of `new`, so that a copy of the event in the same batch is not new.
fn is_new(item: &Item, new: &mut HashSet<Uuid>) -> bool {
    item.settles_event().is_none_or(|id| new.remove(&id))
}

/// Makes a dead letter of the first item; the next transaction writes it.
fn give_up(lane: &mut Lane, reason: &str) {
    if let Some(item) = lane.items.pop_front() {
        lane.items.push_front(item.refused(reason, lane.attempts.max(1)));
    }
}
