//! What a process says about itself: log lines on stdout, Prometheus metrics, liveness and
//! readiness on a port of its own. Each crate declares its own metrics with `metrics!`; there is
//! no list of all metrics here.

pub mod admin;
pub mod logs;
mod metrics;
mod readiness;

#[cfg(test)]
mod tests;

pub use admin::{Admin, AdminSettings};
pub use logs::LogSettings;
pub use metrics::{Definition, LATENCY_SECONDS, Label, Metric, registry};
/// For the code that `metrics!` makes.
pub use prometheus;
pub use readiness::{Condition, Readiness};
