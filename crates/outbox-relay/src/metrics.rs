//! What happens in this relay. The table-wide gauges are in `backlog.rs` alone.

use crate::publisher::ErrorClass;

/// From the commit of a row to the acknowledgement of its event: 1 ms to 5 minutes, since a
/// backlog after an outage is minutes old.
const AGE_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];

telemetry::metrics! {
    pub struct Metrics {
        /// Records that Kafka acknowledged.
        published: IntCounterVec = "outbox_published_total", labels ["destination"];
        /// Records that Kafka did not acknowledge or refused, by the kind of error.
        publish_errors: IntCounterVec = "outbox_publish_errors_total",
            labels ["destination", "class" in ErrorClass::ALL.map(ErrorClass::as_label)];
        /// From handing a record to the Kafka client to its acknowledgement.
        publish_duration: Histogram = "outbox_publish_duration_seconds";
        /// One statement that marks a batch of rows as published.
        mark_duration: Histogram = "outbox_mark_duration_seconds";
        /// From the creation of a row to the acknowledgement of its event.
        commit_to_ack: Histogram = "outbox_commit_to_ack_seconds", buckets AGE_SECONDS;
        /// Acknowledged rows that turned out to be marked already: published twice.
        marks_unmatched: IntCounter = "outbox_marks_unmatched_total";
        /// Rows parked by this relay.
        rows_parked: IntCounter = "outbox_rows_parked_total";
        /// Buckets this relay may send from right now.
        buckets_owned: IntGauge = "outbox_buckets_owned";
        /// Leases that ran out and were taken by another relay.
        leases_lost: IntCounter = "outbox_leases_lost_total";
        /// 1 while sending to the destination is suspended after an error of the infrastructure.
        breaker_open: IntGaugeVec = "outbox_breaker_open", labels ["destination"];
        /// Rows in memory: read, sent or acknowledged, and not yet marked.
        rows_in_flight: IntGaugeVec = "outbox_rows_in_flight", labels ["destination"];
        /// Kafka producers that had to be replaced after a fatal error.
        producers_rebuilt: IntCounter = "outbox_producers_rebuilt_total";
    }
}

impl Metrics {
    /// Makes the series of a destination at 0, so that `increase()` sees the first event.
    pub fn create_destination(&self, destination: &str) {
        let _ = self.published.with_label_values(&[destination]);
        let _ = self.rows_in_flight.with_label_values(&[destination]);
        let _ = self.breaker_open.with_label_values(&[destination]);
        for class in ErrorClass::ALL {
            let _ = self.publish_errors.with_label_values(&[destination, class.as_label()]);
        }
    }
}
