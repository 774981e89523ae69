//! Kafka → one effect per event id. Read `consumer.rs` first.
//!
//! `issue_receipts` is the sample effect and the only module that knows what a charge is; the rest
//! serves any [`handler::Handler`].

mod backoff;
pub mod consumer;
mod dead_letter;
pub mod event;
mod failure;
mod group_member;
pub mod handler;
mod health;
pub mod issue_receipts;
mod lanes;
pub mod metrics;
mod sequence;
pub mod settings;
pub mod subscription;

use prometheus::Registry;
use store::Pool;
use telemetry::Readiness;
use tokio_util::sync::CancellationToken;

use crate::consumer::{Consumer, Limits};
use crate::handler::Handler;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::subscription::Subscription;

/// Why the service could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the database pool could not be made")]
    Pool(#[source] store::Error),
    #[error("the consumer could not be made")]
    Subscription(#[source] subscription::Error),
}

/// A consumer that has joined its group and does nothing before it is run.
pub struct Service<H> {
    consumer: Consumer<H>,
    subscription: Subscription,
    health: Health,
}

impl<H: Handler> Service<H> {
    /// Inside a tokio runtime. Neither the database nor Kafka need be there.
    ///
    /// # Errors
    /// [`BuildError`] when the settings are of no use.
    pub fn build(
        settings: &Settings,
        handler: H,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Self, BuildError> {
        let metrics = Metrics::register(registry);
        let pool = Pool::new(&settings.database, "charge-consumer").map_err(BuildError::Pool)?;
        let subscription =
            Subscription::new(&settings.kafka, &metrics).map_err(BuildError::Subscription)?;
        let limits = Limits {
            batch: settings.consumer.batch,
            concurrency: settings.consumer.concurrency,
            attempts: settings.consumer.attempts,
            transaction_timeout: settings.consumer.transaction_timeout,
        };
        // A transaction may take its whole time, and the loop is not stuck for that.
        let health = Health::new(readiness, 2 * limits.transaction_timeout);
        let consumer = Consumer {
            name: settings.consumer_name().to_owned(),
            pool,
            handler,
            metrics,
            applying: readiness.condition("applying"),
            limits,
        };
        Ok(Self { consumer, subscription, health })
    }

    /// Consumes until `stop`; finishes and commits what is in work then, and leaves the group.
    ///
    /// # Errors
    /// [`subscription::Error`] when the Kafka client cannot go on.
    pub async fn run(self, stop: CancellationToken) -> Result<(), subscription::Error> {
        let member = self.subscription.member().clone();
        tokio::select! {
            result = self.consumer.run(self.subscription, stop) => result,
            () = self.health.watch(&self.consumer.pool, &member) => {
                unreachable!("invariant: the watch never ends")
            }
        }
    }
}
