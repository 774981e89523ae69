//! Retention: published rows that are old enough are deleted, in small batches beside the relaying,
//! on a connection of its own. Every relay does it, and none needs to know of the others.

use std::time::{Duration, Instant};

use prometheus::Registry;
use settings::Retention as Keep;
use store::outbox::retention;
use store::{DatabaseSettings, Error, Pool};

/// Batches of one run. A run that ends there leaves the rest to the next one.
const BATCHES_MAX: u32 = 10_000;

settings::group! {
    /// How long published rows are kept.
    pub struct RetentionSettings {
        /// How long a row is kept after it was published. So long Kafka may lose what it acknowledged
        /// (all replicas at once) and have it from `oncebox outbox replay`, and so long
        /// `oncebox outbox verify` can tell.
        keep: Keep = "relay.retention", default "7d", "a duration from 1h, or never", check an_hour;
        /// How often rows are looked for whose time has come.
        interval: Duration = "relay.retention_interval", default "1m", "a duration from 1s to 1d",
            range Duration::from_secs(1)..=Duration::from_secs(86_400);
        /// Most rows deleted by one statement: some milliseconds of work.
        batch: u32 = "relay.retention_batch", default "2000", "an integer from 1 to 10000",
            range 1..=10_000;
    }
}

/// The charges of the last hour are held against their events by a job of the API.
fn an_hour(keep: &Keep) -> Result<(), String> {
    match keep.0 {
        Some(duration) if duration < Duration::from_secs(3600) => Err("is less than 1h".into()),
        _ => Ok(()),
    }
}

telemetry::metrics! {
    pub struct RetentionMetrics {
        /// How long published rows are kept; 0 is for ever.
        keep: Gauge = "outbox_retention_seconds";
        /// Published rows that this relay deleted because they were old enough.
        deleted: IntCounter = "outbox_retention_deleted_total";
        /// Runs of retention that failed.
        failures: IntCounter = "outbox_retention_failures_total";
        /// When retention last worked here, also with nothing to delete, by the database's clock;
        /// 0 before.
        last_success: IntGauge = "outbox_retention_last_success_timestamp_seconds";
    }
}

pub struct Retention {
    settings: RetentionSettings,
    pool: Pool,
    metrics: RetentionMetrics,
}

impl Retention {
    /// # Errors
    /// When the database's URL cannot be read.
    pub fn new(
        settings: &RetentionSettings,
        database: &DatabaseSettings,
        registry: &Registry,
    ) -> Result<Self, Error> {
        let database = DatabaseSettings { pool_max: 1, ..database.clone() };
        let metrics = RetentionMetrics::register(registry);
        metrics.keep.set(settings.keep.0.unwrap_or_default().as_secs_f64());
        let pool = Pool::new(&database, "outbox-relay retention")?;
        Ok(Self { settings: settings.clone(), pool, metrics })
    }

    /// Runs for ever. A statement cut off by the end of the process is rolled back.
    pub async fn run(&self) {
        let Some(keep) = self.settings.keep.0 else {
            tracing::info!("published rows are kept for ever, as relay.retention says");
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(self.settings.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.run_once(keep).await {
                self.metrics.failures.inc();
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "old published rows could not be deleted; the next run goes on"
                );
            }
        }
    }

    /// Deletes until a batch is not full. Each batch commits by itself; a failure loses none of them.
    ///
    /// # Errors
    /// The database's.
    pub async fn run_once(&self, keep: Duration) -> Result<(), Error> {
        let connection = self.pool.get().await?;
        let rows_max = i64::from(self.settings.batch);
        let before = retention::announce(&connection, keep).await?;
        let mut from = None;
        for _ in 0..BATCHES_MAX {
            let start = Instant::now();
            let batch = retention::delete(&connection, from, before, rows_max).await?;
            self.metrics.deleted.inc_by(batch.deleted.unsigned_abs());
            self.metrics.last_success.set(batch.at.as_second());
            if batch.deleted < rows_max {
                break;
            }
            from = batch.reached;
            // Never more than half of the time: what is published comes first.
            tokio::time::sleep(start.elapsed()).await;
        }
        Ok(())
    }
}
