//! What a scrape shows of declared metrics.

use prometheus::{Registry, TextEncoder};

use crate::registry;

const OUTCOMES: [&str; 2] = ["created", "replayed"];

crate::metrics! {
    /// Of the tests.
    struct Metrics {
        /// Requests with a key,
        /// by outcome.
        requests: IntCounterVec = "t_requests_total",
            labels ["endpoint" in ["charges"], "outcome" in OUTCOMES];
        /// Records published.
        published: IntCounterVec = "t_published_total", labels ["outcome" in OUTCOMES, "destination"];
        /// Time a request took.
        duration: HistogramVec = "t_duration_seconds", labels ["outcome" in OUTCOMES], buckets [0.5];
        /// Time a pass took.
        pass: Histogram = "t_pass_seconds";
        /// Records pending.
        pending: IntGauge = "t_pending_records";
    }
}

fn text(registry: &Registry) -> String {
    TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
}

#[test]
fn every_series_known_beforehand_starts_at_zero() {
    let registry = Registry::new();
    let _metrics = Metrics::register(&registry);

    let text = text(&registry);

    for line in [
        "# HELP t_requests_total Requests with a key, by outcome.",
        r#"t_requests_total{endpoint="charges",outcome="created"} 0"#,
        r#"t_requests_total{endpoint="charges",outcome="replayed"} 0"#,
        r#"t_duration_seconds_bucket{outcome="replayed",le="0.5"} 0"#,
        r#"t_pass_seconds_bucket{le="10"} 0"#,
        "t_pending_records 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("t_published_total"), "one label's values are not known\n{text}");
}

#[test]
fn handles_count_into_the_registry() {
    let registry = Registry::new();
    let metrics = Metrics::register(&registry);

    metrics.requests.with_label_values(&["charges", "created"]).inc();
    metrics.published.with_label_values(&["created", "charges.events"]).inc_by(2);
    metrics.duration.with_label_values(&["created"]).observe(0.1);
    metrics.pass.observe(0.1);
    metrics.pending.set(3);

    let text = text(&registry);
    for line in [
        r#"t_requests_total{endpoint="charges",outcome="created"} 1"#,
        r#"t_published_total{destination="charges.events",outcome="created"} 2"#,
        r#"t_duration_seconds_count{outcome="created"} 1"#,
        "t_pending_records 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
#[should_panic(expected = "metric t_requests_total cannot be registered")]
fn same_name_twice_is_a_bug_that_every_start_shows() {
    let registry = Registry::new();
    let _first = Metrics::register(&registry);

    Metrics::register(&registry);
}

#[test]
fn registry_tells_what_runs_and_what_the_process_uses() {
    let text = text(&registry("charge-api", "1.2.3"));

    assert!(text.contains("build_info{service=\"charge-api\",version=\"1.2.3\"} 1"), "{text}");
    for family in ["process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"]
    {
        assert!(text.contains(family), "{family} is not in\n{text}");
    }
}
