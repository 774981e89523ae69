//! The metrics of the API.

use domain::{Endpoint, Outcome};

/// In charges; `batch.max` is 128 unless it is set.
const BATCH_SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

telemetry::metrics! {
    pub struct Metrics {
        /// Requests with an idempotency key, by what became of them.
        outcomes: IntCounterVec = "charge_api_idempotency_outcomes_total",
            labels ["endpoint" in Endpoint::ALL.map(Endpoint::as_str), "outcome" in Outcome::LABELS];
        /// Time from the head of a request to its answer, by route pattern and status.
        request_duration: HistogramVec = "charge_api_http_request_duration_seconds",
            labels ["route", "status"];
        /// Charges that wait for the committer.
        committer_queue_length: IntGauge = "charge_api_committer_queue_length";
        /// Charges written by one statement.
        committer_batch_size: Histogram = "charge_api_committer_batch_size", buckets BATCH_SIZES;
        /// Charges that were written by themselves after their batch had failed.
        committer_settled_alone: IntCounter = "charge_api_committer_settled_alone_total";
    }
}
