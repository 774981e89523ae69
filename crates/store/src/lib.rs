//! All SQL over the one schema: a module a table, the pool, the transaction and the migrations.
//!
//! A statement is a named constant directly above the one function that runs it. A function that
//! takes a [`Transaction`] must be atomic with others; one that takes a [`Connection`] commits by
//! itself. What a row means is `domain`'s business, and who may ask for it is the services'.

mod error;
mod pool;
mod settings;
mod statement;
mod tls;
mod transaction;

pub mod api_keys;
pub mod audit;
pub mod charges;
pub mod dead_letters;
pub mod follow_ups;
pub mod idempotency_keys;
pub mod inbox;
pub mod key_lock;
pub mod migrate;
pub mod outbox;
pub mod outbox_buckets;
pub mod receipts;
pub mod reconciliation;
pub mod requeue;
pub mod retention;
pub mod roles;

pub use error::Error;
pub use pool::{Connection, Pool};
pub use settings::DatabaseSettings;
pub use statement::Statement;
pub use tls::{Misconfigured, Target, Tls};
pub use transaction::Transaction;

/// Every statement of the store, for the test that prepares each against the migrated schema.
pub const STATEMENTS: &[&[&Statement]] = &[
    api_keys::STATEMENTS,
    api_keys::OPERATOR_STATEMENTS,
    audit::STATEMENTS,
    charges::STATEMENTS,
    dead_letters::STATEMENTS,
    idempotency_keys::STATEMENTS,
    inbox::STATEMENTS,
    key_lock::STATEMENTS,
    migrate::STATEMENTS,
    outbox::STATEMENTS,
    outbox::hold::STATEMENTS,
    outbox::operate::STATEMENTS,
    outbox::relay::STATEMENTS,
    outbox::retention::READER_STATEMENTS,
    outbox::retention::STATEMENTS,
    outbox::verify::STATEMENTS,
    outbox_buckets::STATEMENTS,
    receipts::STATEMENTS,
    reconciliation::STATEMENTS,
    requeue::STATEMENTS,
    retention::STATEMENTS,
];
