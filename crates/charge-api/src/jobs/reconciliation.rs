//! Reconciliation as a job: the charges and events of a window, and a stretch of the keys each time.
//! `oncebox reconcile` looks at all of them.

use jiff::Timestamp;
use store::Pool;
use store::reconciliation::{self, KeyPlace, Kind, Report};

use crate::jobs::{JobMetrics, JobsSettings, note};

/// Keys have no time order, so each run goes on where the last one ended: a million keys in ten runs.
const KEYS_PER_RUN: u64 = 100_000;

pub struct Reconciliation {
    pool: Pool,
    metrics: JobMetrics,
    place: KeyPlace,
}

impl Reconciliation {
    pub fn new(pool: Pool, metrics: JobMetrics) -> Self {
        Self { pool, metrics, place: KeyPlace::default() }
    }

    pub(super) async fn repeat(mut self, settings: JobsSettings) {
        let mut ticks = tokio::time::interval(settings.reconciliation_interval);
        loop {
            ticks.tick().await;
            let result = self.run_once(settings.reconciliation_window).await;
            let metrics = &self.metrics;
            let failures = &metrics.reconciliation_failures;
            note("reconciliation", result, failures, &metrics.reconciliation_last_success);
        }
    }

    /// # Errors
    /// [`store::Error`]; the gauges then still say what the run before found.
    pub async fn run_once(
        &mut self,
        window: std::time::Duration,
    ) -> Result<Timestamp, store::Error> {
        let connection = self.pool.get().await?;
        let now = reconciliation::now(&connection).await?;
        let since = now.checked_sub(window).ok();
        let mut report = Report::default();
        reconciliation::charges(&connection, since, &mut report).await?;
        reconciliation::events(&connection, since, &mut report).await?;
        let place = std::mem::take(&mut self.place);
        let next = reconciliation::keys(&connection, place, KEYS_PER_RUN, &mut report).await?;
        self.place = next.unwrap_or_default();
        for kind in Kind::ALL {
            let found = i64::try_from(report.count(kind)).unwrap_or(i64::MAX);
            self.metrics.mismatches.with_label_values(&[kind.as_label()]).set(found);
        }
        if !report.is_clean() {
            tracing::error!("charges, events and keys do not agree: run `oncebox reconcile`");
        }
        reconciliation::now(&connection).await
    }
}
