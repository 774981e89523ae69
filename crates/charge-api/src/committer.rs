//! The committer: writes whatever charges are waiting in one statement.
//!
//! There is one a process, with connections of its own. It never waits for more work: with one
//! client a batch is one charge, under load the commit of one batch is the time in which the next
//! gathers. A batch that fails is settled one by one, beside the committer, so that a bad charge or
//! a held key never fails or delays its neighbours. `batch.max = 1` is the same code.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use domain::{Endpoint, Outcome, StoredResponse};
use futures_util::FutureExt as _;
use store::idempotency_keys::Lifetime;
use store::outbox::{ChargeRecord, Recorded, record_charges};
use store::{Connection, DatabaseSettings, Pool};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::in_flight::First;
use crate::metrics::Metrics;
use crate::settings::BatchSettings;
use crate::settled;

const ENDPOINT: Endpoint = Endpoint::CreateCharge;

/// How long a whole batch waits for a lock that one of its keys meets. Shorter than
/// `database.lock_timeout`, which the charge then has for itself.
const BATCH_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Between two tries of one charge: a restarting server needs a second or two.
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// A server tells of a failure before it lets the transaction's locks go, so for a moment the next
/// try finds the locks of the one before. Whoever holds them for longer is another process.
const OWN_LOCKS_GONE: Duration = Duration::from_millis(250);

/// Why there is no outcome. The same command may be sent again under its key.
#[derive(Debug)]
pub enum Failure {
    /// The queue is full, the database is away, or the time is up.
    Unavailable(&'static str),
    /// A fault of ours.
    Bug(store::Error),
}

const TOO_MANY: Failure = Failure::Unavailable("too many charges are waiting");

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        if error.is_unavailable() {
            tracing::warn!(error = &error as &dyn std::error::Error, "database unavailable");
            Self::Unavailable("the database is unavailable")
        } else {
            Self::Bug(error)
        }
    }
}

/// Where charges are handed in.
#[derive(Clone)]
pub struct Committer {
    queue: mpsc::Sender<Job>,
    deadline: Duration,
    metrics: Metrics,
}

struct Job {
    record: ChargeRecord,
    /// Keeps the key's later requests waiting until this one has ended, whoever listens.
    first: First,
    reply: oneshot::Sender<Result<Outcome, Failure>>,
    deadline: Instant,
}

impl Committer {
    /// Starts the committer. It ends when every clone is dropped and all that was handed in is
    /// settled; `tasks` tells when.
    ///
    /// # Errors
    /// [`store::Error::NoConnection`] when the database's URL cannot be read.
    pub fn start(
        settings: &BatchSettings,
        lifetime: Lifetime,
        deadline: Duration,
        database: &DatabaseSettings,
        metrics: Metrics,
        tasks: &TaskTracker,
    ) -> Result<Self, store::Error> {
        let own = DatabaseSettings {
            pool_max: settings.connections.into(),
            lock_timeout: database.lock_timeout.min(BATCH_LOCK_TIMEOUT),
            ..database.clone()
        };
        let own = Pool::new(&own, "charge-api committer")?;
        let queue_max = settings.queue.try_into().unwrap_or(Semaphore::MAX_PERMITS);
        let (queue, waiting) = mpsc::channel(queue_max);
        let pool = Pool::new(database, "charge-api lane")?;
        let room = Arc::new(Semaphore::new(queue_max));
        let lane = Lane { pool, room, lifetime, metrics: metrics.clone() };
        let batches = Arc::new(Batches { own, lane, tasks: tasks.clone() });
        tasks.spawn(batches.run(waiting, settings.connections.into(), settings.max.into()));
        Ok(Self { queue, deadline, metrics })
    }

    /// Writes the charge, or finds out what its key stands for. Dropping the future does not
    /// cancel the write.
    ///
    /// # Errors
    /// [`Failure`]: the command may be sent again under its key.
    pub async fn settle(&self, record: ChargeRecord, first: First) -> Result<Outcome, Failure> {
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.deadline;
        // Counted before it is handed in: the committer may take it at once.
        self.metrics.committer_queue_length.inc();
        self.queue.try_send(Job { record, first, reply, deadline }).map_err(|_full| {
            self.metrics.committer_queue_length.dec();
            TOO_MANY
        })?;
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_job_dropped)) => Err(Failure::Unavailable("the process is ending")),
            Err(_elapsed) => Err(Failure::Unavailable("the database took too long")),
        }
    }
}

/// The loop over batches.
struct Batches {
    /// Apart from the others, so that reads and single charges never take the committer's connections.
    own: Pool,
    lane: Lane,
    tasks: TaskTracker,
}

impl Batches {
    /// A batch is taken when there is a connection for it, and not before: what comes meanwhile joins
    /// it.
    async fn run(
        self: Arc<Self>,
        mut waiting: mpsc::Receiver<Job>,
        connections: usize,
        max: usize,
    ) {
        let (give_back, mut idle) = mpsc::channel::<Option<Connection>>(connections);
        for _ in 0..connections {
            give_back.try_send(None).expect("invariant: there is room for each connection");
        }
        while let Some(connection) = idle.recv().await {
            let mut batch = Vec::with_capacity(max);
            if waiting.recv_many(&mut batch, max).await == 0 {
                return;
            }
            let (size, metrics) = (batch.len(), &self.lane.metrics);
            metrics.committer_queue_length.sub(i64::try_from(size).unwrap_or(i64::MAX));
            #[expect(clippy::cast_precision_loss, reason = "a batch has at most 1000 charges")]
            metrics.committer_batch_size.observe(size as f64);
            let (batches, give_back) = (Arc::clone(&self), give_back.clone());
            self.tasks.spawn(async move {
                // A panic costs its own batch: nobody would ever get the connection's place again.
                let settled = AssertUnwindSafe(batches.settle(connection, batch)).catch_unwind();
                let connection = settled.await.unwrap_or_default();
                // The loop ends before its last batches do.
                let _ = give_back.send(connection).await;
            });
        }
    }

    /// Settles the batch on this connection, or on a new one; the connection, if it is still good.
    async fn settle(&self, connection: Option<Connection>, batch: Vec<Job>) -> Option<Connection> {
        match self.record(connection, &batch).await {
            Ok((connection, recorded)) => {
                for (job, recorded) in batch.into_iter().zip(recorded) {
                    match outcome_of(&job.record, &recorded) {
                        Some(outcome) => job.end(Ok(outcome)),
                        None => self.settle_alone(job),
                    }
                }
                return Some(connection);
            }
            Err(store::Error::NoConnection { operation, source }) => {
                // Nothing was sent, so nothing is unknown: say so at once.
                tracing::warn!(
                    error = &*source as &dyn std::error::Error,
                    operation,
                    "no connection"
                );
                for job in batch {
                    job.end(Err(Failure::Unavailable("the database is unavailable")));
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    charges = batch.len(),
                    "batch failed; settling its charges one by one"
                );
                for job in batch {
                    self.settle_alone(job);
                }
            }
        }
        None
    }

    async fn record(
        &self,
        connection: Option<Connection>,
        batch: &[Job],
    ) -> Result<(Connection, Vec<Recorded>), store::Error> {
        let connection = match connection {
            Some(connection) => connection,
            None => self.own.get().await?,
        };
        let records: Vec<&ChargeRecord> = batch.iter().map(|job| &job.record).collect();
        match record_charges(&connection, ENDPOINT, self.lane.lifetime, &records).await {
            Ok(recorded) => Ok((connection, recorded)),
            Err(error) => {
                connection.discard();
                Err(error)
            }
        }
    }

    /// When the database fails batch after batch, the charges would gather here without end.
    fn settle_alone(&self, job: Job) {
        let lane = self.lane.clone();
        match Arc::clone(&lane.room).try_acquire_owned() {
            Ok(place) => drop(self.tasks.spawn(async move {
                lane.settle(job).await;
                drop(place);
            })),
            Err(_full) => job.end(Err(TOO_MANY)),
        }
    }
}

/// Settles single charges, on a pool of its own: one that waits for a held key must not take the
/// connections that reads need.
#[derive(Clone)]
struct Lane {
    pool: Pool,
    /// For as many charges as may wait in the queue.
    room: Arc<Semaphore>,
    lifetime: Lifetime,
    metrics: Metrics,
}

impl Lane {
    /// Runs the statement for this charge alone until it says what became of it. An earlier try may
    /// have been committed without an answer; the statement then finds the charge's own id.
    async fn settle(&self, job: Job) {
        self.metrics.committer_settled_alone.inc();
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY_FIRST)
            .with_max_delay(RETRY_MAX)
            .with_jitter()
            .without_max_times();
        let own_locks_gone = Instant::now() + OWN_LOCKS_GONE;
        let tries =
            (|| self.once(&job.record, own_locks_gone)).retry(backoff).when(
                |failure| match failure {
                    Failure::Unavailable(_) => true,
                    Failure::Bug(_) => false,
                },
            );
        let result = tokio::time::timeout_at(job.deadline, tries)
            .await
            .unwrap_or(Err(Failure::Unavailable("the database took too long")));
        job.end(result);
    }

    async fn once(
        &self,
        record: &ChargeRecord,
        own_locks_gone: Instant,
    ) -> Result<Outcome, Failure> {
        let connection = self.pool.get().await?;
        let result = self.ask(&connection, record, own_locks_gone).await;
        if let Err(Failure::Unavailable(_)) = &result {
            // Its server may be ending, or be no primary any more.
            connection.discard();
        }
        result
    }

    async fn ask(
        &self,
        connection: &Connection,
        record: &ChargeRecord,
        own_locks_gone: Instant,
    ) -> Result<Outcome, Failure> {
        let recorded = record_charges(connection, ENDPOINT, self.lifetime, &[record]).await?;
        let recorded = recorded.into_iter().next().expect("invariant: one entry a record");
        match (outcome_of(record, &recorded), recorded) {
            (_, Recorded::SameCommandRuns) if Instant::now() < own_locks_gone => {
                Err(Failure::Unavailable("the key is contended"))
            }
            (Some(outcome), _) => Ok(outcome),
            (None, Recorded::Stored(stored)) => {
                let (tenant, fingerprint) = (&record.tenant, &record.fingerprint);
                settled::outcome(connection, tenant, fingerprint, &record.charge, stored).await
            }
            (None, _) => Err(Failure::Unavailable("the key is contended")),
        }
    }
}

/// What the statement's word means for a charge; `None` when the database has to be asked again.
fn outcome_of(record: &ChargeRecord, recorded: &Recorded) -> Option<Outcome> {
    match recorded {
        Recorded::Written => Some(Outcome::Created(answer(record))),
        Recorded::Stored(stored) if stored.charge_id == record.charge_id => {
            Some(Outcome::Created(answer(record)))
        }
        Recorded::Stored(stored) if stored.fingerprint == record.fingerprint => {
            Some(settled::same_command(stored.clone()))
        }
        Recorded::SameCommandRuns => Some(Outcome::InFlight),
        // Which members differ is not known before the other command has committed.
        Recorded::OtherCommandRuns => Some(Outcome::PayloadConflict { differing: vec![] }),
        Recorded::Stored(_) | Recorded::Unseen => None,
    }
}

fn answer(record: &ChargeRecord) -> StoredResponse {
    StoredResponse {
        status: 201,
        content_type: "application/json".into(),
        location: Some(record.location.clone()),
        body: record.body.clone(),
    }
}

impl Job {
    fn end(self, result: Result<Outcome, Failure>) {
        if let Ok(outcome) = &result {
            self.first.settle(outcome);
        }
        // The client may be gone; the charge is written all the same.
        let _ = self.reply.send(result);
    }
}
