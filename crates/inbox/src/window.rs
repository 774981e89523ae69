//! The dedup window: how far back the inbox can tell what was applied. It is a contract with the
//! topic, which must not keep events for longer; the broker is asked how long it does.
//!
//! What is older all the same is parked (`consumer.rs`), so a window that is too short never makes
//! an effect happen twice: it makes events wait for an operator that could have been applied.

use std::fmt;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use telemetry::Condition;
use tokio::runtime::Handle;

use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::subscription;

/// Somebody changes the retention by hand, and a window has days to spare.
const CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Until the broker has told it once.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(10);
/// A broker that is there answers at once; one that is not shall not hold up the start.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a topic keeps its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    For(Duration),
    Unlimited,
}

/// The window does not cover the topic: the consumer does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the dedup window is too short: inbox.retention is {window}, but the topic {topic} keeps its \
     events {kept} and inbox.longest_replay is {longest_replay}; raise inbox.retention, or lower \
     the topic's retention.ms",
    window = Days(*window), longest_replay = Days(*longest_replay)
)]
pub struct TooShort {
    topic: String,
    window: Duration,
    kept: Retention,
    longest_replay: Duration,
}

pub struct Window {
    config: ClientConfig,
    topic: String,
    window: Duration,
    longest_replay: Duration,
    /// Instead of what the broker says.
    given: Option<Duration>,
    metrics: Metrics,
    condition: Condition,
}

impl Window {
    pub fn new(settings: &Settings, metrics: Metrics, condition: Condition) -> Self {
        let window = settings.inbox.retention;
        metrics.window_seconds.set(seconds(window));
        condition.set_false("the retention of the topic is not known yet");
        Self {
            config: subscription::connection(&settings.kafka),
            topic: settings.kafka.topic.clone(),
            window,
            longest_replay: settings.inbox.longest_replay,
            given: settings.inbox.topic_retention,
            metrics,
            condition,
        }
    }

    /// Asks once, before anything is consumed. `false` when the broker does not tell.
    ///
    /// # Errors
    /// [`TooShort`].
    pub async fn open(&self) -> Result<bool, TooShort> {
        let Some(kept) = self.ask().await else { return Ok(false) };
        self.check(kept).map(|()| true)
    }

    /// Asks again from time to time. A window that has become too short makes the process not ready;
    /// it ends only when the first answer says so, `known` being whether there has been one.
    ///
    /// # Errors
    /// [`TooShort`].
    pub async fn watch(&self, mut known: bool) -> Result<(), TooShort> {
        loop {
            tokio::time::sleep(if known { CHECK_INTERVAL } else { UNKNOWN_INTERVAL }).await;
            let Some(kept) = self.ask().await else { continue };
            match self.check(kept) {
                Err(short) if !known => return Err(short),
                Err(short) => tracing::error!(error = %short, "events may have to be parked"),
                Ok(()) => {}
            }
            known = true;
        }
    }

    fn check(&self, kept: Retention) -> Result<(), TooShort> {
        self.metrics.topic_retention_seconds.set(match kept {
            Retention::For(kept) => seconds(kept),
            Retention::Unlimited => -1,
        });
        if covers(self.window, kept, self.longest_replay) {
            self.condition.set(true);
            return Ok(());
        }
        let short = TooShort {
            topic: self.topic.clone(),
            window: self.window,
            kept,
            longest_replay: self.longest_replay,
        };
        self.condition.set_false(short.to_string());
        Err(short)
    }

    /// `None` when the broker does not tell; what was known before then stands.
    async fn ask(&self) -> Option<Retention> {
        if let Some(given) = self.given {
            return Some(Retention::For(given));
        }
        let (config, topic) = (self.config.clone(), self.topic.clone());
        // The client ends with its thread, which is waited for: not on a thread of the runtime.
        let asked = move || Handle::current().block_on(topic_retention(&config, &topic));
        match tokio::task::spawn_blocking(asked).await {
            Ok(Ok(kept)) => Some(kept),
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, topic = %self.topic, "the broker does not tell a retention");
                None
            }
            Err(_panicked_or_ending) => None,
        }
    }
}

/// Does a window tell for every event that the topic can still deliver whether it was applied?
fn covers(window: Duration, kept: Retention, longest_replay: Duration) -> bool {
    match kept {
        Retention::For(kept) => window >= kept.saturating_add(longest_replay),
        Retention::Unlimited => false,
    }
}

async fn topic_retention(config: &ClientConfig, topic: &str) -> Result<Retention, KafkaError> {
    let client: AdminClient<DefaultClientContext> = config.create()?;
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let answer = client.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await?;
    let described = answer.into_iter().next().unwrap_or(Err(RDKafkaErrorCode::InvalidConfig));
    let described = described.map_err(KafkaError::AdminOp)?;
    let value = |name| described.get(name).and_then(|entry| entry.value.as_deref());
    read_retention(value("cleanup.policy"), value("retention.ms"))
        .ok_or(KafkaError::AdminOp(RDKafkaErrorCode::InvalidConfig))
}

/// A topic that only compacts deletes nothing by age.
fn read_retention(policy: Option<&str>, millis: Option<&str>) -> Option<Retention> {
    if policy.is_some_and(|policy| !policy.contains("delete")) {
        return Some(Retention::Unlimited);
    }
    let millis: i64 = millis?.parse().ok()?;
    Some(
        u64::try_from(millis)
            .map_or(Retention::Unlimited, |millis| Retention::For(Duration::from_millis(millis))),
    )
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(kept) => write!(f, "for {}", Days(*kept)),
            Self::Unlimited => f.write_str("for ever"),
        }
    }
}

/// As an operator writes it in a setting.
struct Days(Duration);

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 24 * 60 * 60;
        match self.0.as_secs() {
            seconds if seconds > 0 && seconds % DAY == 0 => write!(f, "{}d", seconds / DAY),
            seconds => write!(f, "{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn a_window_covers_what_the_topic_keeps_and_the_longest_replay() {
        for (window, kept, replay, expected) in [
            (7, Retention::For(7 * DAY), 0, true),
            (7, Retention::For(7 * DAY), 1, false),
            (8, Retention::For(7 * DAY), 1, true),
            (7, Retention::For(8 * DAY), 0, false),
            (365, Retention::Unlimited, 0, false),
            (365, Retention::For(Duration::MAX), 1, false),
        ] {
            assert_eq!(covers(window * DAY, kept, replay * DAY), expected, "{window} {kept:?}");
        }
    }

    #[test]
    fn what_a_broker_says_of_a_topic_is_how_long_it_keeps_events() {
        let week = Some(Retention::For(7 * DAY));
        for (policy, millis, expected) in [
            (Some("delete"), Some("604800000"), week),
            (Some("compact,delete"), Some("604800000"), week),
            (None, Some("604800000"), week),
            (Some("compact"), Some("604800000"), Some(Retention::Unlimited)),
            (Some("delete"), Some("-1"), Some(Retention::Unlimited)),
            (Some("delete"), None, None),
            (Some("delete"), Some("soon"), None),
        ] {
            assert_eq!(read_retention(policy, millis), expected, "{policy:?} {millis:?}");
        }
    }

    #[test]
    fn a_refusal_names_both_figures() {
        let short = |kept| TooShort {
            topic: "t".into(),
            window: 7 * DAY,
            kept,
            longest_replay: Duration::from_secs(90),
        };
        let text = short(Retention::For(8 * DAY)).to_string();
        assert!(text.contains("inbox.retention is 7d"), "{text}");
        assert!(text.contains("keeps its events for 8d"), "{text}");
        assert!(text.contains("inbox.longest_replay is 90s"), "{text}");
        let text = short(Retention::Unlimited).to_string();
        assert!(text.contains("keeps its events for ever"), "{text}");
    }
}
