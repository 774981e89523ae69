//! The table-wide gauges, and the only place that sets them. Every relay reports the same values:
//! combine them with `max by`, never with `sum`.

use std::time::Duration;

use store::outbox::relay as outbox;
use store::{Error, Pool};

telemetry::metrics! {
    pub struct BacklogMetrics {
        /// Age of the oldest pending row; 0 when nothing is pending.
        oldest_pending_age: Gauge = "outbox_oldest_pending_age_seconds";
        /// Pending rows, counted up to 10001.
        pending: IntGauge = "outbox_pending";
        /// Parked rows, which wait for an operator; counted up to 10001.
        parked: IntGauge = "outbox_parked";
        /// Age of the oldest snapshot that anybody in the database holds, in transactions: what
        /// was marked since cannot be vacuumed.
        oldest_xmin_age: IntGauge = "outbox_oldest_xmin_age";
    }
}

impl BacklogMetrics {
    /// Measures for ever.
    pub async fn run(&self, pool: &Pool, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.run_once(pool).await {
                // The relay's own loop makes the relay not ready; here only figures are missing.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the backlog could not be measured"
                );
            }
        }
    }

    /// # Errors
    /// The database's; the gauges keep their values.
    pub async fn run_once(&self, pool: &Pool) -> Result<(), Error> {
        let connection = pool.get().await?;
        let backlog = outbox::backlog(&connection).await?;
        self.oldest_pending_age.set(backlog.oldest_pending_age.as_secs_f64());
        self.pending.set(backlog.pending);
        self.parked.set(backlog.parked);
        self.oldest_xmin_age.set(outbox::oldest_xmin_age(&connection).await?);
        Ok(())
    }
}
