//! What the relay does for its Kafka client and its topic beside sending.

use std::time::{Duration, Instant};

use super::Relay;
use crate::destination::Permit;
use crate::publisher::{ErrorClass, Failure};

/// How long after its time-out a record is reported on at the latest, on a busy machine.
const REPORT_DELAY_MAX: Duration = Duration::from_secs(15);

impl Relay {
    /// Replaces a producer that can send nothing more, and asks for the topic now and then.
    pub(super) async fn look_after_kafka(&mut self, now: Instant) {
        if let Some(failure) = self.publisher.fatal_error() {
            // One whose predecessor failed a moment ago would do no better.
            if self.destination.permit(now) != Permit::None {
                self.replace_producer(now, &failure);
            }
        } else if now >= self.sweep_at
            && let Some(sent) = self.in_flight.oldest_sent()
            && now - sent > self.settings.kafka.message_timeout + REPORT_DELAY_MAX
        {
            let reason = "the Kafka client does not report on its records".into();
            self.replace_producer(now, &Failure { class: ErrorClass::Fatal, reason });
        }
        if let Some(probe) = self.probe.take_if(|probe| probe.is_finished())
            && let Ok(result) = probe.await
        {
            self.destination.probed(now, result, self.publisher.last_error());
        }
        if self.probe.is_none() && self.destination.wants_probe(now) {
            self.probe = Some(self.publisher.probe(&self.destination.route.topic));
        }
    }

    /// Nobody will say what became of the old one's records: none counts as published.
    fn replace_producer(&mut self, now: Instant, failure: &Failure) {
        let reason = failure.reason.as_str();
        tracing::error!(reason, "the Kafka producer is broken; making a new one");
        self.destination.count_error(failure);
        self.destination.failed(now, failure, None);
        match self.publisher.rebuild() {
            Ok(()) => {
                self.metrics.producers_rebuilt.inc();
                let again = self.in_flight.abandon_sent();
                self.read_again(again);
            }
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "no new Kafka producer could be made"
            ),
        }
    }
}
