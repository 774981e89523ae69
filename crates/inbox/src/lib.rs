//! The inbox: Kafka → one effect per event id, around a [`Handler`] of one's own. `docs/CONSUMER.md`
//! shows how. Read `consumer.rs` first.
//!
//! Nothing here knows what an event means. The tables are the store's.

mod backoff;
mod consumer;
mod dead_letter;
mod event;
mod failure;
mod group_member;
mod handler;
mod health;
mod keeper;
mod lanes;
mod metrics;
mod sequence;
mod settings;
mod subscription;
mod window;

use prometheus::Registry;
use store::Pool;
use telemetry::Readiness;
use tokio_util::sync::CancellationToken;

use crate::consumer::{Consumer, Limits};
use crate::health::Health;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::subscription::Subscription;
use crate::window::Window;

pub use crate::event::{Envelope, Event, Header, Record};
pub use crate::handler::{Handler, HandlerError};
pub use crate::settings::Settings;
pub use crate::subscription::Error as SubscriptionError;
pub use crate::window::TooShort;

/// Why the inbox could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the database pool could not be made")]
    Pool(#[source] store::Error),
    #[error("the consumer could not be made")]
    Subscription(#[source] subscription::Error),
}

/// A consumer that has joined its group and does nothing before it is run.
pub struct Inbox<H> {
    consumer: Consumer<H>,
    subscription: Subscription,
    health: Health,
    window: Window,
    keeper: Keeper,
}

/// Why an inbox ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Subscription(#[from] subscription::Error),
    #[error(transparent)]
    Window(#[from] TooShort),
}

impl<H: Handler> Inbox<H> {
    /// `application` is the name that PostgreSQL and Kafka list this process under. Inside a tokio
    /// runtime. Neither the database nor Kafka need be there.
    ///
    /// # Errors
    /// [`BuildError`] when the settings are of no use.
    pub fn build(
        settings: &Settings,
        application: &str,
        handler: H,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Self, BuildError> {
        let metrics = Metrics::register(registry);
        let pool = Pool::new(&settings.database, application).map_err(BuildError::Pool)?;
        let subscription = Subscription::new(&settings.kafka, application, &metrics)
            .map_err(BuildError::Subscription)?;
        let limits = Limits {
            batch: settings.consumer.batch,
            concurrency: settings.consumer.concurrency,
            attempts: settings.consumer.attempts,
            transaction_timeout: settings.consumer.transaction_timeout,
            window: settings.inbox.retention,
        };
        // A transaction may take its whole time, and the loop is not stuck for that.
        let health = Health::new(readiness, 2 * limits.transaction_timeout);
        let condition = readiness.condition("dedup_window");
        let window = Window::new(settings, metrics.clone(), condition);
        let keeper = Keeper {
            consumer: settings.consumer_name().to_owned(),
            pool: pool.clone(),
            window: limits.window,
            metrics: metrics.clone(),
        };
        let consumer = Consumer {
            name: settings.consumer_name().to_owned(),
            pool,
            handler,
            metrics,
            applying: readiness.condition("applying"),
            limits,
        };
        Ok(Self { consumer, subscription, health, window, keeper })
    }

    /// Consumes until `stop`; finishes and commits what is in work then, and leaves the group.
    ///
    /// # Errors
    /// [`Error`] when the Kafka client cannot go on, or the dedup window is too short for the topic.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let known = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            opened = self.window.open() => opened?,
        };
        let member = self.subscription.member().clone();
        tokio::select! {
            result = self.consumer.run(self.subscription, stop) => Ok(result?),
            short = self.window.watch(known) => Ok(short?),
            () = self.health.watch(&self.consumer.pool, &member) => {
                unreachable!("invariant: the watch never ends")
            }
            () = self.keeper.keep() => unreachable!("invariant: it never ends"),
        }
    }
}

/// The version of the Kafka client, for the log.
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

/// Compiles the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/CONSUMER.md")]
struct ConsumerPage;
