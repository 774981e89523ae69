//! The crate is tested from inside where a process can go on; log lines need a process each and
//! are tested in `tests/log_lines.rs`.

mod admin;
mod metrics;
mod readiness;
