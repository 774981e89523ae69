//! Retention: expired keys that are completed go, in small batches. It never touches an unfinished
//! one, and none at all where an expired key stays as a tombstone.

use std::time::Duration;

use jiff::Timestamp;
use store::retention::{self, Batch};
use store::{Connection, Pool};

use crate::jobs::{JobMetrics, note};

/// Batches of one run. A run that ends there leaves the rest to the next one.
const BATCHES_MAX: u32 = 10_000;

pub struct Retention {
    pub pool: Pool,
    pub metrics: JobMetrics,
}

impl Retention {
    pub(super) async fn repeat(self, interval: Duration, batch_max: u32) {
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            let result = self.run_once(batch_max.into()).await;
            let metrics = &self.metrics;
            let (failures, success) =
                (&metrics.retention_failures, &metrics.retention_last_success);
            note("retention", result, failures, success);
        }
    }

    /// Deletes until a batch is not full. Each batch commits by itself; a failure loses none of them.
    ///
    /// # Errors
    /// [`store::Error`].
    pub async fn run_once(&self, batch_max: i64) -> Result<Timestamp, store::Error> {
        let connection = self.pool.get().await?;
        let mut batch = self.batch(&connection, batch_max).await?;
        for _ in 1..BATCHES_MAX {
            if batch.deleted < batch_max || batch_max == 0 {
                break;
            }
            batch = self.batch(&connection, batch_max).await?;
        }
        Ok(batch.at)
    }

    async fn batch(&self, connection: &Connection, batch_max: i64) -> Result<Batch, store::Error> {
        let batch = retention::delete_expired(connection, batch_max).await?;
        self.metrics.retention_deleted.inc_by(batch.deleted.unsigned_abs());
        Ok(batch)
    }
}
