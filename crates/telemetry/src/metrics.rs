//! The registry of a process and `metrics!`: a struct whose doc comments are the help texts.
//! A label whose values are known is given with them, and then every series starts at 0, so that
//! `increase()` sees the first event. Never make a key, aggregate, tenant or path a label.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, core::Collector,
};

/// Buckets for what usually takes milliseconds: 1 ms to 10 s, so that a 5 s timeout is inside.
pub const LATENCY_SECONDS: [f64; 13] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A registry with the process's own metrics (`process_*`) and `build_info`.
pub fn registry(service: &str, version: &str) -> Registry {
    let registry = Registry::new();
    let process = prometheus::process_collector::ProcessCollector::for_self();
    let opts = Opts::new("build_info", "What runs here; the value is always 1.")
        .const_label("service", service)
        .const_label("version", version);
    let build_info = IntGauge::with_opts(opts).expect("invariant: the name and labels are valid");
    build_info.set(1);
    let registered = registry.register(Box::new(process));
    registered
        .and_then(|()| registry.register(Box::new(build_info)))
        .expect("invariant: the registry is empty");
    registry
}

/// A metric as declared in `metrics!`.
pub struct Definition {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: Vec<Label>,
    /// Upper bounds of a histogram's buckets; `None` for `LATENCY_SECONDS`.
    pub buckets: Option<Vec<f64>>,
}

/// A label, and its values when they are known beforehand.
pub struct Label {
    pub name: &'static str,
    pub values: Option<Vec<String>>,
}

/// A kind of metric that `metrics!` can make.
pub trait Metric: Collector + Clone + 'static {
    fn new(definition: &Definition) -> prometheus::Result<Self>;

    /// Makes the series with these label values, at 0.
    fn create_series(&self, values: &[&str]) {
        // A metric without labels is its own and only series.
        let _ = values;
    }

    /// Makes, registers and fills in all series that are known beforehand.
    ///
    /// # Panics
    /// When the definition is invalid or its name taken: a mistake in the source that every start
    /// shows.
    fn register(registry: &Registry, definition: &Definition) -> Self {
        let metric = Self::new(definition)
            .unwrap_or_else(|error| panic!("metric {} is invalid: {error}", definition.name));
        for values in definition.known_series() {
            metric.create_series(&values);
        }
        if let Err(error) = registry.register(Box::new(metric.clone())) {
            panic!("metric {} cannot be registered: {error}", definition.name);
        }
        metric
    }
}

impl Definition {
    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help.trim())
    }

    fn histogram_opts(&self) -> HistogramOpts {
        let buckets = self.buckets.clone().unwrap_or_else(|| LATENCY_SECONDS.to_vec());
        HistogramOpts::from(self.opts()).buckets(buckets)
    }

    fn label_names(&self) -> Vec<&str> {
        self.labels.iter().map(|label| label.name).collect()
    }

    /// Every combination of the labels' values; none when one label's values are not known.
    fn known_series(&self) -> Vec<Vec<&str>> {
        let mut series: Vec<Vec<&str>> = vec![Vec::new()];
        for label in &self.labels {
            let values = label.values.as_deref().unwrap_or_default();
            series = series
                .iter()
                .flat_map(|head| values.iter().map(|value| [&head[..], &[value.as_str()]].concat()))
                .collect();
        }
        series
    }
}

macro_rules! plain {
    ($($metric:ty),+) => {$(
        impl Metric for $metric {
            fn new(definition: &Definition) -> prometheus::Result<Self> {
                Self::with_opts(definition.opts())
            }
        }
    )+};
}

macro_rules! labelled {
    ($($metric:ty: $opts:ident),+) => {$(
        impl Metric for $metric {
            fn new(definition: &Definition) -> prometheus::Result<Self> {
                Self::new(definition.$opts(), &definition.label_names())
            }

            fn create_series(&self, values: &[&str]) {
                let _ = self.with_label_values(values);
            }
        }
    )+};
}

plain!(IntCounter, IntGauge, Gauge);
labelled!(IntCounterVec: opts, IntGaugeVec: opts, GaugeVec: opts, HistogramVec: histogram_opts);

impl Metric for Histogram {
    fn new(definition: &Definition) -> prometheus::Result<Self> {
        Self::with_opts(definition.histogram_opts())
    }
}

/// Declares a struct of metrics with `register(&Registry) -> Self`. A field is
/// `name: IntCounterVec = "full_name_total" [, labels ["a" in VALUES, "b"]] [, buckets BOUNDS];`
/// where VALUES is anything iterable of texts, such as `Outcome::ALL.map(Outcome::as_label)`;
/// without it the label's values are not known beforehand.
#[macro_export]
macro_rules! metrics {
    (@values) => { None };
    (@values $values:expr) => { Some($values.into_iter().map(String::from).collect()) };
    (@buckets) => { None };
    (@buckets $buckets:expr) => { Some($buckets.to_vec()) };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ident = $metric:literal
                $(, labels [$($label:literal $(in $values:expr)?),+ $(,)?])?
                $(, buckets $buckets:expr)?;
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone)]
        $vis struct $name {
            $( $(#[doc = $help])+ pub $field: $crate::prometheus::$type, )+
        }

        impl $name {
            pub fn register(registry: &$crate::prometheus::Registry) -> Self {
                Self {$(
                    $field: $crate::Metric::register(registry, &$crate::Definition {
                        name: $metric,
                        help: concat!($($help),+),
                        labels: vec![$($(
                            $crate::Label {
                                name: $label,
                                values: $crate::metrics!(@values $($values)?),
                            }
                        ),+)?],
                        buckets: $crate::metrics!(@buckets $($buckets)?),
                    }),
                )+}
            }
        }
    };
}
