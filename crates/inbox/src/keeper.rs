//! Tells the inbox from time to time that its consumer is there, and how far back it must be able to
//! tell. The database then makes the partitions of the next weeks and drops those nobody needs.

use std::time::Duration;

use jiff::Timestamp;
use store::{Pool, inbox};

use crate::metrics::Metrics;

/// Partitions are made three weeks ahead and go by the week, so an hour is soon enough.
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Until it works again: after weeks without a consumer nothing can be recorded before.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

pub struct Keeper {
    pub consumer: String,
    pub pool: Pool,
    pub window: Duration,
    pub metrics: Metrics,
}

impl Keeper {
    /// Keeps until it is dropped.
    pub async fn keep(&self) {
        loop {
            let wait = match self.keep_once().await {
                Ok(at) => {
                    self.metrics.keep_last_success.set(at.as_second());
                    INTERVAL
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the partitions of the inbox could not be seen to");
                    self.metrics.keep_failures.inc();
                    RETRY_INTERVAL
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn keep_once(&self) -> Result<Timestamp, store::Error> {
        let connection = self.pool.get().await?;
        inbox::keep(&connection, &self.consumer, self.window).await
    }
}
