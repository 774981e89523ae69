//! The inbox: Kafka → one effect per event id, around a [`Handler`] of one's own. `docs/CONSUMER.md`
//! shows how. Read `consumer.rs` first.
//!
//! Nothing here knows what an event means. The tables are the store's.

mod backoff;
mod consumer;
mod dead_letter;
mod dead_letter_topic;
mod event;
mod failure;
mod follow_up;
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
use store::{Pool, dead_letters};
use telemetry::Readiness;
use tokio_util::sync::CancellationToken;

use crate::consumer::{Consumer, Limits};
use crate::dead_letter_topic::DeadLetterTopic;
use crate::health::Health;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::subscription::Subscription;
use crate::window::Window;

pub use crate::event::{Envelope, Event, Header, Record};
pub use crate::follow_up::{Counts, FollowUp, Undone, Worker};
pub use crate::handler::{Handler, HandlerError};
pub use crate::settings::Settings;
pub use crate::subscription::Error as SubscriptionError;
pub use crate::window::TooShort;

/// A dead letter may have a megabyte.
const LETTERS_AT_ONCE: usize = 16;

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
    publisher: Option<Worker<DeadLetterTopic>>,
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
        let publisher = settings.kafka.dead_letter_topic.as_deref().map(|topic| Worker {
            work: "publish dead letters",
            queue: &dead_letters::PUBLICATIONS,
            consumer: settings.consumer_name().to_owned(),
            pool: pool.clone(),
            follow_up: DeadLetterTopic::new(topic, &settings.kafka, application),
            at_once: LETTERS_AT_ONCE,
            counts: Counts {
                waiting: metrics.dead_letters_unpublished.clone(),
                given_up: None,
                done: metrics.dead_letters_published.clone(),
                errors: metrics.dead_letter_publish_errors.clone(),
            },
        });
        let consumer = Consumer {
            name: settings.consumer_name().to_owned(),
            pool,
            handler,
            metrics,
            applying: readiness.condition("applying"),
            limits,
        };
        Ok(Self { consumer, subscription, health, window, keeper, publisher })
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
        let stop = stop.child_token();
        let consume = async {
            let result = self.consumer.run(self.subscription, stop.clone()).await;
            stop.cancel();
            result
        };
        let publish = async {
            if let Some(publisher) = &self.publisher {
                publisher.run(&stop).await;
            }
        };
        tokio::select! {
            (result, ()) = async { tokio::join!(consume, publish) } => Ok(result?),
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
