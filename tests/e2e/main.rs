//! End to end: the built binaries as processes, against real PostgreSQL and real Apache Kafka.
//!
//! Run by `make test`; alone, with `cargo test --release -p e2e`, it starts servers of its own. The
//! servers are shared; each test has its own database, topic, group and processes.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; these are clients that make up keys"
)]

mod attack;
mod brokers;
mod charges;
mod consumer;
mod consumer_faults;
mod context;
mod dead_letter_topic;
mod faults;
mod idempotency;
mod kafka_security;
mod outbox;
mod outbox_contract;
mod processes;
mod relay_kills;
mod servers;
mod verification;
mod versions;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::Arguments;

use crate::context::Shared;

/// A test waits more than it works, but each has a handful of processes on the same few cores.
const TESTS_AT_ONCE: usize = 3;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TESTS_AT_ONCE);
    let shared = Arc::new(Shared::new());
    let trials = [
        idempotency::trials(&shared),
        outbox::trials(&shared),
        outbox_contract::trials(&shared),
        consumer::trials(&shared),
        consumer_faults::trials(&shared),
        dead_letter_topic::trials(&shared),
        servers::trials(&shared),
        verification::trials(&shared),
        processes::trials(&shared),
        attack::trials(&shared),
        faults::trials(&shared),
        kafka_security::trials(&shared),
        brokers::trials(&shared),
        relay_kills::trials(&shared),
    ];
    let trials = trials.into_iter().flatten().collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    shared.stop(conclusion.has_failed());
    conclusion.exit_code()
}
