//! The consumer against a real PostgreSQL and librdkafka's mock cluster. Overlap and crashes are
//! forced: a trigger holds a transaction open at its effect until the test lets it go.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; a test sets its database up with raw SQL"
)]

mod dead_letters;
mod effect;
mod outage;
mod rebalance;
mod window;
mod world;
