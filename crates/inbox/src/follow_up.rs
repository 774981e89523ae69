//! Work that can join no transaction, such as a record to another topic or a mail. The transaction
//! writes down that it is to be done, in a table that is a [`Queue`]; a [`Worker`] does it after the
//! commit: claim, do, mark. It is done at least once, and again when the process dies before the mark.
//!
//! Any number of workers share a queue. What it is that they do is the [`FollowUp`]'s business.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use prometheus::{IntCounter, IntGauge};
use store::follow_ups::{self, Claim, Queue};
use store::{Connection, Pool};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::backoff::Backoff;

/// How often a worker without work looks for some.
const IDLE_WAIT: Duration = Duration::from_secs(1);
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Longest attempt: so long a drain may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// An attempt with its mark, and time to spare; what a dead worker had waits for so long.
const LEASE: Duration = Duration::from_secs(30);
/// Between two attempts at one row. The others go on meanwhile.
const ROW_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
/// After attempts of which all failed: then it is hardly the rows' fault.
const WORKER_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };
/// As much of an error as an operator reads.
const ERROR_CHARS_MAX: usize = 1000;

/// What is done after the commit.
pub trait FollowUp: Send + Sync + 'static {
    /// What a row asks for.
    type Job: Send + Sync;

    /// Reads these rows. One that is gone needs nothing done.
    fn read(
        &self,
        connection: &Connection,
        ids: &[Uuid],
    ) -> impl Future<Output = Result<Vec<(Uuid, Self::Job)>, store::Error>> + Send;

    /// Does it. Called again for the same job whenever it is not certain that it was done.
    fn perform(&self, job: &Self::Job) -> impl Future<Output = Result<(), Undone>> + Send;
}

/// Why a job was not done. The text is logged, and kept in the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It may work later.
    Later(String),
    /// It never will: an operator has to look.
    Never(String),
}

/// The metrics of a worker.
pub struct Counts {
    pub waiting: IntGauge,
    /// `None` where nothing is ever given up.
    pub given_up: Option<IntGauge>,
    pub done: IntCounter,
    pub errors: IntCounter,
}

pub struct Worker<F> {
    /// What the log calls it.
    pub work: &'static str,
    pub queue: &'static Queue,
    /// Whose rows these are.
    pub consumer: String,
    pub pool: Pool,
    pub follow_up: F,
    /// Most jobs done side by side; their rows are in memory.
    pub at_once: usize,
    pub counts: Counts,
}

type Attempt = (Claim, Result<(), Undone>);

impl<F: FollowUp> Worker<F> {
    /// Works until `stop`; finishes and marks what is being done then.
    pub async fn run(&self, stop: &CancellationToken) {
        tokio::select! {
            () = self.work(stop) => {}
            () = self.count() => unreachable!("invariant: it never ends"),
        }
    }

    async fn work(&self, stop: &CancellationToken) {
        let mut unsettled = Vec::new();
        let mut failures: u32 = 0;
        while !stop.is_cancelled() {
            let wait = match self.work_once(&mut unsettled).await {
                Ok(Worked::Idle) => IDLE_WAIT,
                Ok(Worked::Something) => {
                    if failures > 0 {
                        tracing::info!(work = self.work, "it works again");
                    }
                    failures = 0;
                    continue;
                }
                Ok(Worked::InVain) => {
                    failures = failures.saturating_add(1);
                    WORKER_BACKOFF.after(failures)
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, work = self.work, "the database is of no help");
                    failures = failures.saturating_add(1);
                    WORKER_BACKOFF.after(failures)
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// What was attempted and is not marked yet stays in `unsettled`: that is worth another try.
    async fn work_once(&self, unsettled: &mut Vec<Attempt>) -> Result<Worked, store::Error> {
        self.settle(unsettled).await?;
        let connection = self.pool.get().await?;
        let most = i64::try_from(self.at_once).unwrap_or(i64::MAX);
        let claims =
            follow_ups::claim(&connection, self.queue, &self.consumer, most, LEASE).await?;
        if claims.is_empty() {
            return Ok(Worked::Idle);
        }
        let ids: Vec<Uuid> = claims.iter().map(|claim| claim.id).collect();
        let jobs: HashMap<Uuid, F::Job> =
            self.follow_up.read(&connection, &ids).await?.into_iter().collect();
        // Others may have it while the world outside is waited for.
        drop(connection);
        let attempts = claims.into_iter().filter_map(|claim| {
            let job = jobs.get(&claim.id)?;
            Some(async move { (claim, self.attempt(job).await) })
        });
        *unsettled = join_all(attempts).await;
        self.report(unsettled);
        let in_vain = !unsettled.is_empty()
            && unsettled.iter().all(|(_, result)| matches!(result, Err(Undone::Later(_))));
        self.settle(unsettled).await?;
        Ok(if in_vain { Worked::InVain } else { Worked::Something })
    }

    async fn attempt(&self, job: &F::Job) -> Result<(), Undone> {
        let late = |_| Err(Undone::Later(format!("no answer within {ATTEMPT_LIMIT:?}")));
        timeout(ATTEMPT_LIMIT, self.follow_up.perform(job)).await.unwrap_or_else(late)
    }

    fn report(&self, attempts: &[Attempt]) {
        let failed = |attempt: &Attempt| attempt.1.as_ref().err().cloned();
        let undone: Vec<Undone> = attempts.iter().filter_map(failed).collect();
        self.counts.done.inc_by((attempts.len() - undone.len()) as u64);
        self.counts.errors.inc_by(undone.len() as u64);
        let later = undone.iter().filter_map(|undone| match undone {
            Undone::Later(error) => Some(error),
            Undone::Never(_) => None,
        });
        if let Some(error) = later.clone().next() {
            let (work, failed, of) = (self.work, later.count(), attempts.len());
            tracing::warn!(work, failed, of, error, "not done; it is tried again");
        }
        for (claim, result) in attempts {
            if let Err(Undone::Never(error)) = result {
                tracing::error!(work = self.work, id = %claim.id, error, "given up; look at its row");
            }
        }
    }

    /// Marks what was done and puts off the rest.
    async fn settle(&self, attempts: &mut Vec<Attempt>) -> Result<(), store::Error> {
        if attempts.is_empty() {
            return Ok(());
        }
        let connection = self.pool.get().await?;
        let done = attempts.iter().filter(|(_, result)| result.is_ok());
        let done: Vec<Uuid> = done.map(|(claim, _)| claim.id).collect();
        follow_ups::finish(&connection, self.queue, &done).await?;
        for (claim, result) in attempts.iter() {
            let (error, wait) = match result {
                Ok(()) => continue,
                Err(Undone::Later(error)) => {
                    (error, Some(ROW_BACKOFF.after(claim.attempts.unsigned_abs())))
                }
                Err(Undone::Never(error)) => (error, None),
            };
            // PostgreSQL has no text for U+0000.
            let error: String =
                error.chars().filter(|char| *char != '\0').take(ERROR_CHARS_MAX).collect();
            follow_ups::put_off(&connection, self.queue, *claim, wait, &error).await?;
        }
        attempts.clear();
        Ok(())
    }

    /// Counts what is left until it is dropped.
    async fn count(&self) {
        loop {
            // While the database does not tell, what it told last stands.
            if let Ok(backlog) = self.backlog().await {
                self.counts.waiting.set(backlog.waiting);
                if let Some(given_up) = &self.counts.given_up {
                    given_up.set(backlog.given_up);
                }
            }
            sleep(COUNT_INTERVAL).await;
        }
    }

    async fn backlog(&self) -> Result<follow_ups::Backlog, store::Error> {
        let connection = self.pool.get().await?;
        follow_ups::count(&connection, self.queue, &self.consumer).await
    }
}

enum Worked {
    /// There was nothing to do.
    Idle,
    Something,
    /// All of it is to be tried again.
    InVain,
}
