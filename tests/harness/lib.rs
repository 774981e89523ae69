//! The harness: real PostgreSQL, real Apache Kafka and the built binaries as processes.
//!
//! `make demo`, `make stack` and every test that needs a server use it; nothing else starts servers.
//! It knows the services only by their contracts (settings, HTTP, topic, tables, metrics).

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; the harness starts servers, waits for them and looks inside"
)]

pub mod answers;
pub mod checkout;
pub mod client;
pub mod eventually;
pub mod hold;
pub mod kafka;
pub mod kafka_jars;
pub mod kafka_security;
pub mod ledger;
pub mod logs;
pub mod metrics;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod run_dir;
pub mod servers;
pub mod service;
pub mod stack;
pub mod topic;
