//! The metrics of the inbox.

use crate::sequence::Anomaly;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its event was new and has its effect.
    Processed,
    /// Its event had been applied before.
    Duplicate,
    /// Its id is not of a time that the inbox can tell of, so nobody knows whether it was applied.
    Parked,
    /// It cannot be applied and was put aside.
    DeadLettered,
}

impl Outcome {
    pub const ALL: [Self; 4] = [Self::Processed, Self::Duplicate, Self::Parked, Self::DeadLettered];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Parked => "parked",
            Self::DeadLettered => "dead_lettered",
        }
    }
}

/// Why work was put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCause {
    /// Something that every event needs is away.
    Outage,
    /// This event fails.
    Event,
}

impl RetryCause {
    pub const ALL: [Self; 2] = [Self::Outage, Self::Event];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Outage => "outage",
            Self::Event => "event",
        }
    }
}

/// From a commit to its effect: the relay, Kafka and the consumer are in it, so milliseconds when
/// all is well, and hours after an outage.
const COMMIT_TO_EFFECT_SECONDS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

telemetry::metrics! {
    pub struct Metrics {
        /// Records settled, by what became of them.
        events: IntCounterVec = "inbox_events_total",
            labels ["outcome" in Outcome::ALL.map(Outcome::as_label)];
        /// How long the transaction of a batch took, from its begin to its commit.
        handle_seconds: Histogram = "inbox_handle_duration_seconds";
        /// From the commit that wrote an event to the commit of its effect.
        commit_to_effect_seconds: Histogram = "inbox_commit_to_effect_seconds",
            buckets COMMIT_TO_EFFECT_SECONDS;
        /// Records not yet settled in the partitions that this process has. Add up all processes.
        lag: IntGauge = "inbox_lag";
        /// How old an event may be that is applied.
        window_seconds: IntGauge = "inbox_dedup_window_seconds";
        /// How long the topic keeps its events; -1 = for ever, 0 = not known yet.
        topic_retention_seconds: IntGauge = "inbox_topic_retention_seconds";
        /// When the partitions of the inbox were last seen to, by the database's clock; 0 before.
        keep_last_success: IntGauge = "inbox_keep_last_success_timestamp_seconds";
        /// Runs of that which failed.
        keep_failures: IntCounter = "inbox_keep_failures_total";
        /// Partitions that this process has.
        assigned_partitions: IntGauge = "inbox_assigned_partitions";
        /// Partitions that wait for their next attempt.
        waiting_partitions: IntGauge = "inbox_waiting_partitions";
        /// Attempts that failed and come again, by cause.
        retries: IntCounterVec = "inbox_retries_total",
            labels ["cause" in RetryCause::ALL.map(RetryCause::as_label)];
        /// Dead letters of this consumer that are not in the dead-letter topic; 0 while there is none.
        dead_letters_unpublished: IntGauge = "inbox_dead_letters_unpublished";
        /// Dead letters that this process has put into the dead-letter topic.
        dead_letters_published: IntCounter = "inbox_dead_letters_published_total";
        /// Attempts at that which failed and come again.
        dead_letter_publish_errors: IntCounter = "inbox_dead_letter_publish_errors_total";
        /// Events that do not follow the one before them in their aggregate.
        sequence_anomalies: IntCounterVec = "inbox_sequence_anomalies_total",
            labels ["kind" in Anomaly::ALL.map(Anomaly::as_label)];
    }
}

impl Metrics {
    pub fn settled(&self, outcome: Outcome, records: usize) {
        self.events.with_label_values(&[outcome.as_label()]).inc_by(records as u64);
    }

    pub fn put_off(&self, cause: RetryCause) {
        self.retries.with_label_values(&[cause.as_label()]).inc();
    }

    pub fn anomaly(&self, anomaly: Anomaly) {
        self.sequence_anomalies.with_label_values(&[anomaly.as_label()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn every_series_is_there_from_the_start() {
        let registry = Registry::new();
        let _metrics = Metrics::register(&registry);
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .expect("metrics are text");
        for series in [
            r#"inbox_events_total{outcome="processed"} 0"#,
            r#"inbox_events_total{outcome="dead_lettered"} 0"#,
            r#"inbox_sequence_anomalies_total{kind="regression"} 0"#,
            r#"inbox_retries_total{cause="outage"} 0"#,
            "inbox_lag 0",
        ] {
            assert!(text.contains(series), "{series} is not in\n{text}");
        }
    }
}
