//! What the API does beside its requests: keys that expired go, and the books are checked. Each job
//! is a `run_once` and this loop around it. Any number of APIs may run them at once.

pub mod reconciliation;
pub mod retention;

use std::time::Duration;

use prometheus::{IntCounter, IntGauge, Registry};
use settings::Secret;
use store::reconciliation::Kind;
use store::{DatabaseSettings, Pool};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

settings::group! {
    /// Jobs.
    pub struct JobsSettings {
        /// Connection URL for the jobs, of a login in the role oncebox_jobs; database.url when it is
        /// not set.
        database_url: Option<Secret> = "jobs.database_url", optional, "as database.url";
        /// How often expired keys are looked for.
        retention_interval: Duration = "retention.interval", default "1m",
            "a duration from 1s to 1d", range Duration::from_secs(1)..=Duration::from_secs(86_400);
        /// Most keys deleted by one statement: a few milliseconds of work.
        retention_batch: u32 = "retention.batch", default "1000",
            "an integer from 1 to 10000", range 1..=10_000;
        /// How often charges, events and keys are held against each other.
        reconciliation_interval: Duration = "reconciliation.interval", default "15m",
            "a duration from 1s to 1d", range Duration::from_secs(1)..=Duration::from_secs(86_400);
        /// How far back: longer than the interval, so that every charge is looked at twice or more.
        reconciliation_window: Duration = "reconciliation.window", default "1h",
            "a duration from 1s to 30d", range Duration::from_secs(1)..=Duration::from_secs(2_592_000);
    }
}

telemetry::metrics! {
    pub struct JobMetrics {
        /// Idempotency keys deleted because they had expired.
        retention_deleted: IntCounter = "charge_api_retention_deleted_total";
        /// Runs of the retention job that failed.
        retention_failures: IntCounter = "charge_api_retention_failures_total";
        /// When the retention job last came to its end, by the database's clock; 0 before.
        retention_last_success: IntGauge = "charge_api_retention_last_success_timestamp_seconds";
        /// Mismatches that the last run of reconciliation found.
        mismatches: IntGaugeVec = "charge_api_reconciliation_mismatches",
            labels ["kind" in Kind::ALL.map(Kind::as_label)];
        /// Runs of reconciliation that failed.
        reconciliation_failures: IntCounter = "charge_api_reconciliation_failures_total";
        /// When reconciliation last came to its end, by the database's clock; 0 before.
        reconciliation_last_success: IntGauge =
            "charge_api_reconciliation_last_success_timestamp_seconds";
    }
}

/// Both jobs, with connections of their own.
pub struct Jobs {
    settings: JobsSettings,
    tombstones: bool,
    pool: Pool,
    metrics: JobMetrics,
}

impl Jobs {
    /// # Errors
    /// When the database's URL cannot be read.
    pub fn new(settings: &Settings, registry: &Registry) -> Result<Self, store::Error> {
        let (database, keys) = (&settings.database, settings.idempotency.lifetime());
        let settings = &settings.jobs;
        let url = settings.database_url.clone().unwrap_or_else(|| database.url.clone());
        // Of their own: a job never takes a connection from a request.
        let database = DatabaseSettings { url, pool_max: 2, ..database.clone() };
        Ok(Self {
            settings: settings.clone(),
            tombstones: keys.tombstone,
            pool: Pool::new(&database, "charge-api jobs")?,
            metrics: JobMetrics::register(registry),
        })
    }

    /// Runs until the token is cancelled. A statement cut off then is rolled back.
    pub async fn run(self, token: CancellationToken) {
        let mut jobs = JoinSet::new();
        let Self { settings, tombstones, pool, metrics } = self;
        let retention = retention::Retention { pool: pool.clone(), metrics: metrics.clone() };
        // A batch of none: every key stays, and the job still tells that it comes to its end.
        let batch_max = if tombstones { 0 } else { settings.retention_batch };
        jobs.spawn(retention.repeat(settings.retention_interval, batch_max));
        let reconciliation = reconciliation::Reconciliation::new(pool, metrics);
        jobs.spawn(reconciliation.repeat(settings));
        token.cancelled().await;
        jobs.shutdown().await;
    }
}

/// Notes how a run ended.
fn note(
    job: &'static str,
    result: Result<jiff::Timestamp, store::Error>,
    failures: &IntCounter,
    last_success: &IntGauge,
) {
    match result {
        Ok(at) => last_success.set(at.as_second()),
        Err(error) => {
            failures.inc();
            tracing::warn!(error = &error as &dyn std::error::Error, job, "a job failed");
        }
    }
}
