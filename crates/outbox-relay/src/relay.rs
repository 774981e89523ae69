//! The way of an event: a pending row is read, published to Kafka, and marked once Kafka has
//! acknowledged it. At least once, and in the order of each aggregate, with any number of relays.
//!
//! One loop does it all, for one topic. Each pass takes in what Kafka and the writer reported, reads
//! on, and sends meanwhile what the passes before have read; the writer marks beside it. No transaction
//! is open while Kafka is awaited, and nothing is remembered that the table does not know: a relay that
//! dies loses only time.
//!
//! The order within a pass is what keeps a row from being sent twice: a marked row is forgotten between
//! two reads, so what a read brings is compared with every row whose mark it may not have seen.

mod upkeep;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use store::outbox::relay::OutboxRecord;
use store::{Connection, Error};
use tokio::task::JoinHandle;

use crate::destination::{Destination, Permit};
use crate::event::Event;
use crate::exchange::{Database, Questions};
use crate::in_flight::{Admitted, InFlight, ReadAgain};
use crate::leases::Occupant;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::publisher::{Batching, Delivery, ErrorClass, Failure, Publisher, Queued};
use crate::reach::Reaches;
use crate::settings::Settings;
use crate::writer::{Order, Writer};

/// How often passed-over rows are looked for: the longest that a late commit may wait.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// A sweep that takes long comes less often: at most a twentieth of the time goes there.
const SWEEP_SHARE: u32 = 20;
/// Less room than this share of a batch is not read into: many small reads would cost more than one.
const ROOM_SHARE_MIN: usize = 4;
/// How many rows are read to find out whether a destination takes records again.
const TRIAL_ROWS: usize = 32;
/// Records under suspicion at a time. Forgetting them costs one more refusal each.
const SUSPECTS_MAX: usize = 10_000;
/// The Kafka client counts a record as queued for a moment after it has reported on it.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(5);
/// What one pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Rows that were read and not in memory before.
    pub read: usize,
    pub sent: usize,
    pub marked: usize,
    pub parked: usize,
}

pub struct Relay {
    settings: Settings,
    metrics: Metrics,
    leases: Occupant,
    publisher: Publisher,
    destination: Destination,
    writer: Writer,
    in_flight: InFlight,
    reaches: Reaches,
    pace: Pace,
    sweep_at: Instant,
    probe: Option<JoinHandle<Result<(), Failure>>>,
    /// Rows that were refused together with others.
    suspects: HashSet<i64>,
    /// When the Kafka client, having had no room, is tried again.
    room_at: Instant,
    draining: bool,
}

impl Relay {
    pub fn new(
        settings: &Settings,
        metrics: Metrics,
        leases: Occupant,
        publisher: Publisher,
        destination: Destination,
        writer: Writer,
    ) -> Self {
        let now = Instant::now();
        Self {
            settings: settings.clone(),
            metrics,
            leases,
            publisher,
            destination,
            writer,
            in_flight: InFlight::new(settings.relay.ordering),
            reaches: Reaches::new(now),
            pace: Pace::new(settings.relay.poll_idle, now),
            sweep_at: now + SWEEP_INTERVAL,
            probe: None,
            suspects: HashSet::new(),
            room_at: now,
            draining: false,
        }
    }

    /// One pass.
    ///
    /// # Errors
    /// The database's; what was to be read is read in a later pass.
    pub async fn run_once(&mut self, connection: &Connection) -> Result<Pass, Error> {
        let now = Instant::now();
        self.follow_leases(now);
        self.collect(now);
        self.look_after_kafka(now).await;
        let mut pass = Pass::default();
        self.write(&mut pass);
        self.read(connection, now, &mut pass).await?;
        let rows = i64::try_from(self.in_flight.rows()).unwrap_or(i64::MAX);
        self.metrics.rows_in_flight.with_label_values(&[&self.destination.route.topic]).set(rows);
        Ok(pass)
    }

    /// Takes in what became of the records that were sent.
    fn collect(&mut self, now: Instant) {
        let deliveries = self.publisher.deliveries();
        if !deliveries.is_empty() {
            self.room_at = now;
        }
        for Delivery { seq, batching, result } in deliveries {
            match result {
                Ok(placed) => {
                    self.destination.acknowledged(now);
                    self.suspects.remove(&seq);
                    if let Some((row, sent_at)) = self.in_flight.acknowledged(seq, placed) {
                        let metrics = &self.metrics;
                        metrics.publish_duration.observe((now - sent_at).as_secs_f64());
                        metrics.commit_to_ack.observe((now - row.born).as_secs_f64());
                    }
                }
                Err(failure) => self.not_delivered(now, seq, batching, &failure),
            }
        }
    }

    fn not_delivered(&mut self, now: Instant, seq: i64, batching: Batching, failure: &Failure) {
        self.destination.count_error(failure);
        match (failure.class, batching) {
            (ErrorClass::Record, Batching::Alone) => {
                self.suspects.remove(&seq);
                self.in_flight.refused(seq, failure.reason.clone());
                return;
            }
            // Kafka refused the batch. Which of its records is to blame shows when each is sent
            // alone.
            (ErrorClass::Record, Batching::Shared) => {
                if self.suspects.len() >= SUSPECTS_MAX {
                    self.suspects.clear();
                }
                self.suspects.insert(seq);
                self.pace.hurry(now);
            }
            (_, _) => self.destination.failed(now, failure, self.publisher.last_error()),
        }
        let again = self.in_flight.failed(seq);
        self.read_again(again);
    }

    /// Takes in what was written since the last pass, and hands over what is due now.
    ///
    /// A row is forgotten here alone, before the next read begins: a read that began before its mark
    /// was committed, and brings it once more, has been compared with it by then.
    fn write(&mut self, pass: &mut Pass) {
        if let Some(written) = self.writer.fetch() {
            pass.marked = written.acknowledged.len();
            self.metrics
                .marks_unmatched
                .inc_by((pass.marked as u64).saturating_sub(written.marked));
            let again = self.in_flight.marked(&written.acknowledged);
            self.read_again(again);
            pass.parked = usize::try_from(written.parked).unwrap_or(usize::MAX);
            self.metrics.rows_parked.inc_by(written.parked);
            let again = self.in_flight.parked(&written.refused);
            self.read_again(again);
        }
        if !self.writer.is_busy() && self.in_flight.has_unwritten() {
            let batch = usize::try_from(self.settings.relay.batch).unwrap_or(usize::MAX);
            let (acknowledged, refused) =
                (self.in_flight.to_mark(batch), self.in_flight.to_park(batch));
            self.writer.write(Order::of(&acknowledged, &refused));
        }
    }

    /// Reads on, and sends meanwhile.
    async fn read(
        &mut self,
        connection: &Connection,
        now: Instant,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        let questions = self.questions(now);
        let database = Database { connection, route: Arc::clone(&self.destination.route) };
        // In this order: the statements are on their way before this thread is busy with sending.
        let (records, passed_over, sent) =
            tokio::join!(database.read(&questions), database.sweep(&questions), async {
                self.send(now)
            },);
        pass.sent = sent;
        if let Some(records) = records? {
            pass.read = self.admit(now, &questions, records);
        }
        if let Some((found, duration)) = passed_over? {
            self.after_sweep(&found, duration);
        }
        Ok(())
    }

    fn questions(&mut self, now: Instant) -> Questions {
        let limits = &self.settings.relay;
        let batch = usize::try_from(limits.batch).unwrap_or(usize::MAX);
        let bytes_max = limits.in_flight_bytes.as_usize().saturating_sub(self.in_flight.bytes());
        let rows_max = if self.pace.is_due(now) { self.room().min(batch) } else { 0 };
        self.reaches.turn(now);
        let wants = self.reaches.wants(rows_max);
        let sweep = if now >= self.sweep_at && !self.draining {
            self.reaches.read_up_to(|bucket| self.in_flight.bucket_rows(bucket))
        } else {
            Vec::new()
        };
        let payload_bytes_max = self.settings.kafka.message_bytes_max.as_usize();
        Questions { wants, bytes_max, payload_bytes_max, sweep }
    }

    /// How many rows may be read.
    fn room(&self) -> usize {
        let limits = &self.settings.relay;
        let worthwhile = usize::try_from(limits.batch).unwrap_or(usize::MAX) / ROOM_SHARE_MIN;
        let rows_max = usize::try_from(limits.in_flight_rows).unwrap_or(usize::MAX);
        let no_bytes_left = self.in_flight.bytes() >= limits.in_flight_bytes.as_usize();
        if self.draining || no_bytes_left {
            0
        } else if self.destination.opens_at().is_none() {
            Some(rows_max.saturating_sub(self.in_flight.rows()))
                .filter(|room| *room >= worthwhile)
                .unwrap_or_default()
        } else {
            // The backlog stays in the table but for something to try with.
            TRIAL_ROWS.saturating_sub(self.in_flight.rows())
        }
    }

    /// Takes the rows that a read brought. Returns how many were not in memory before.
    fn admit(
        &mut self,
        asked: Instant,
        questions: &Questions,
        records: Vec<OutboxRecord>,
    ) -> usize {
        let more = self.reaches.advance(&questions.wants, &records);
        let bytes: usize = records.iter().map(|record| record.payload_bytes).sum();
        let usable = self.leases.usable(Instant::now());
        let mut new = 0;
        for record in records {
            // Without a lease it is not ours; the bucket is read from its start if it comes back.
            let Some(epoch) = usable.get(&record.bucket) else { continue };
            let born = asked.checked_sub(record.age).unwrap_or(asked);
            match self.in_flight.admit(record, *epoch, born) {
                Admitted::Yes => new += 1,
                Admitted::Known | Admitted::No => {}
            }
        }
        self.pace.after_read(Instant::now(), new, more || bytes >= questions.bytes_max);
        new
    }

    /// Rows that reads have passed and that are not in memory were committed late.
    fn after_sweep(&mut self, found: &[(i16, i64)], duration: Duration) {
        self.sweep_at = Instant::now() + SWEEP_INTERVAL.max(duration * SWEEP_SHARE);
        for (bucket, seq) in found.iter().copied() {
            if !self.in_flight.contains(seq) {
                self.read_again(Some(ReadAgain { bucket, seq }));
            }
        }
    }

    fn read_again(&mut self, again: impl IntoIterator<Item = ReadAgain>) {
        for again in again {
            self.reaches.rewind(again);
        }
    }

    /// Sends the heads of all aggregates, in the order in which they became heads.
    fn send(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while self.may_send(now) {
            let Some(row) = self.in_flight.next_ready() else { break };
            let seq = row.record.seq;
            let alone = self.suspects.contains(&seq);
            let batching = if alone { Batching::Alone } else { Batching::Shared };
            let queued = match Event::of(&row.record, &self.settings.relay.source) {
                Ok(event) => self.publisher.send(&self.destination.route.topic, &event, batching),
                Err(reason) => Queued::Refused(reason),
            };
            match queued {
                Queued::Yes => {
                    self.in_flight.sent(seq, now);
                    sent += 1;
                }
                Queued::Full => {
                    self.room_at = now + QUEUE_FULL_PAUSE;
                    break;
                }
                Queued::Refused(reason) => {
                    let failure = Failure { class: ErrorClass::Record, reason };
                    self.destination.count_error(&failure);
                    self.in_flight.refused(seq, failure.reason);
                }
                Queued::Failed(failure) => {
                    self.not_delivered(now, seq, batching, &failure);
                    break;
                }
            }
        }
        sent
    }

    fn may_send(&self, now: Instant) -> bool {
        match self.destination.permit(now) {
            _ if self.draining || now < self.room_at => false,
            Permit::All => true,
            Permit::One => self.in_flight.sent_rows() == 0,
            Permit::None => false,
        }
    }

    /// Drops what this relay may no longer send, and says which buckets it has nothing of.
    fn follow_leases(&mut self, now: Instant) {
        let usable = self.leases.usable(now);
        let draining = self.draining;
        self.in_flight.leave(|bucket| draining || !usable.contains_key(&bucket));
        self.reaches.keep(&usable);
        self.leases.report_quiet(|bucket| self.in_flight.bucket_rows(bucket) == 0);
    }

    /// Stops reading and sending. What was sent is still awaited and marked.
    pub fn drain(&mut self) {
        self.draining = true;
        self.leases.close();
        self.follow_leases(Instant::now());
    }

    /// Takes its leave, once it [is idle](Self::is_idle).
    pub fn end(self) {
        self.leases.leave();
    }

    /// What Kafka has reported and no pass has taken in: a relay that dies now leaves that unmarked.
    pub fn deliveries_waiting(&self) -> usize {
        self.publisher.deliveries_waiting()
    }

    /// Nothing is in memory.
    pub fn is_idle(&self) -> bool {
        self.in_flight.rows() == 0
    }

    /// Waits until a pass has something to do.
    pub async fn rest(&mut self) {
        let now = Instant::now();
        let may_read = self.room() > 0 && !self.reaches.is_empty();
        let reads_at = may_read.then(|| self.pace.next_read());
        let sends = self.may_send(now) && self.in_flight.next_ready().is_some();
        let writes = !self.writer.is_busy() && self.in_flight.has_unwritten();
        if sends || writes || reads_at.is_some_and(|at| at <= now) {
            // Lets the other tasks of this thread go on.
            tokio::task::yield_now().await;
            return;
        }
        let longest = now + self.settings.relay.poll_idle;
        let opens_at = self.destination.opens_at().filter(|at| *at > now);
        let room_at = Some(self.room_at).filter(|at| *at > now);
        let until = [reads_at, opens_at, room_at].into_iter().flatten().fold(longest, Instant::min);
        tokio::select! {
            () = self.publisher.delivered() => {}
            () = self.writer.written() => {}
            () = self.leases.gained() => self.pace.hurry(Instant::now()),
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}
