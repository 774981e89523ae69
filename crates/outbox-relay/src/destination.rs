//! One topic: whether records may be sent to it now, and what is said about its state.
//!
//! An error of the infrastructure opens its breaker: the backlog stays in PostgreSQL, and after a
//! pause one record is let through to see. No row pays for that with an attempt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::Condition;

use crate::backoff::Backoff;
use crate::metrics::Metrics;
use crate::publisher::Failure;
use crate::routes::Route;

/// The first pause is about one fail-over of a partition's leader.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// A cluster that is back is used again after at most this long.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the topic is asked for while something is wrong with it.
const PROBE_INTERVAL_FAILING: Duration = Duration::from_secs(1);
/// How often it is asked for while nothing is sent.
const PROBE_INTERVAL_QUIET: Duration = Duration::from_secs(30);

/// How many records may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    All,
    /// One, and only if none is on its way.
    One,
    None,
}

#[derive(Debug, Clone, Copy)]
enum Breaker {
    Closed,
    OpenUntil(Instant),
}

pub struct Destination {
    pub route: Arc<Route>,
    metrics: Metrics,
    condition: Condition,
    breaker: Breaker,
    backoff: Backoff,
    /// The topic was seen or took a record, and nothing failed since.
    healthy: bool,
    next_probe: Instant,
}

impl Destination {
    pub fn new(route: Route, metrics: Metrics, condition: Condition) -> Self {
        metrics.create_destination(&route.topic);
        Self {
            route: Arc::new(route),
            metrics,
            condition,
            breaker: Breaker::Closed,
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            healthy: false,
            next_probe: Instant::now(),
        }
    }

    pub fn permit(&self, now: Instant) -> Permit {
        match self.breaker {
            Breaker::Closed => Permit::All,
            Breaker::OpenUntil(until) if now >= until => Permit::One,
            Breaker::OpenUntil(_) => Permit::None,
        }
    }

    /// When one record may be tried, while the breaker is open.
    pub fn opens_at(&self) -> Option<Instant> {
        match self.breaker {
            Breaker::Closed => None,
            Breaker::OpenUntil(until) => Some(until),
        }
    }

    /// A record was acknowledged.
    pub fn acknowledged(&mut self, now: Instant) {
        self.metrics.published.with_label_values(&[self.route.topic.as_str()]).inc();
        self.next_probe = now + PROBE_INTERVAL_QUIET;
        if let Breaker::OpenUntil(_) = self.breaker {
            tracing::info!(topic = self.route.topic, "Kafka takes records again");
            self.breaker = Breaker::Closed;
            self.backoff.reset();
            self.metrics.breaker_open.with_label_values(&[self.route.topic.as_str()]).set(0);
        }
        if !self.healthy {
            self.healthy = true;
            self.condition.set(true);
        }
    }

    pub fn count_error(&self, failure: &Failure) {
        let labels = [self.route.topic.as_str(), failure.class.as_label()];
        self.metrics.publish_errors.with_label_values(&labels).inc();
    }

    /// A record failed through no fault of its own. `hint` is what the client last complained
    /// about: a wrong password shows there only.
    pub fn failed(&mut self, now: Instant, failure: &Failure, hint: Option<String>) {
        // Records that were on their way when it opened fail with it, and say nothing new.
        if matches!(self.breaker, Breaker::OpenUntil(until) if now < until) {
            return;
        }
        let pause = self.backoff.next();
        self.breaker = Breaker::OpenUntil(now + pause);
        self.metrics.breaker_open.with_label_values(&[self.route.topic.as_str()]).set(1);
        let reason = explained(failure, hint);
        tracing::error!(
            topic = self.route.topic,
            class = failure.class.as_label(),
            reason,
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "Kafka does not take records; they stay in the outbox"
        );
        self.unhealthy(now, reason);
    }

    pub fn wants_probe(&self, now: Instant) -> bool {
        now >= self.next_probe
    }

    /// What the cluster said of the topic. It does not close the breaker: a topic that can be
    /// described may still refuse records.
    pub fn probed(&mut self, now: Instant, result: Result<(), Failure>, hint: Option<String>) {
        match result {
            Ok(()) if self.opens_at().is_none() => {
                self.healthy = true;
                self.condition.set(true);
                self.next_probe = now + PROBE_INTERVAL_QUIET;
            }
            Ok(()) => self.next_probe = now + PROBE_INTERVAL_FAILING,
            Err(failure) => self.unhealthy(now, explained(&failure, hint)),
        }
    }

    fn unhealthy(&mut self, now: Instant, reason: String) {
        self.healthy = false;
        self.next_probe = now + PROBE_INTERVAL_FAILING;
        self.condition.set_false(format!("topic {}: {reason}", self.route.topic));
    }
}

fn explained(failure: &Failure, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{} (the client's last error: {hint})", failure.reason),
        None => failure.reason.clone(),
    }
}
