//! Which role runs which statements: what the grants of `migrations/` are held against.
//!
//! The rights themselves are rows of `role_grants`.

use crate::{
    Statement, api_keys, charges, dead_letters, idempotency_keys, inbox, migrate, outbox,
    outbox_buckets, receipts, reconciliation, retention,
};

/// A role, and the statements of the process that runs as it.
pub type Role = (&'static str, &'static [&'static [&'static Statement]]);

/// The owner of the schema is the operator and runs whatever is not listed.
pub const ROLES: &[Role] = &[
    (
        "oncebox_api",
        &[
            api_keys::STATEMENTS,
            charges::STATEMENTS,
            idempotency_keys::STATEMENTS,
            migrate::STATEMENTS,
            outbox::STATEMENTS,
        ],
    ),
    (
        "oncebox_relay",
        &[
            migrate::STATEMENTS,
            outbox::relay::STATEMENTS,
            outbox::retention::STATEMENTS,
            outbox_buckets::STATEMENTS,
        ],
    ),
    (
        "oncebox_consumer",
        &[dead_letters::STATEMENTS, inbox::STATEMENTS, migrate::STATEMENTS, receipts::STATEMENTS],
    ),
    (
        "oncebox_jobs",
        &[
            migrate::STATEMENTS,
            outbox::retention::READER_STATEMENTS,
            reconciliation::STATEMENTS,
            retention::STATEMENTS,
        ],
    ),
    ("oncebox_readonly", &[migrate::STATEMENTS]),
    // Whoever it is, its statements are its own.
    ("oncebox_writer", &[]),
];
