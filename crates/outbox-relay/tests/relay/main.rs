//! The relay against a real PostgreSQL and librdkafka's mock cluster, whose brokers can be told to
//! fail. What a real Kafka does is tested end to end, in `tests/`.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends at what it did not expect; it mints the ids of its own rows"
)]

mod contract;
mod ending;
mod events;
mod failures;
mod idle;
mod leases;
mod order;
mod retention;
mod rig;
mod routes;
