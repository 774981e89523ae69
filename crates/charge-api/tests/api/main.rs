//! The charge API as its clients and attackers meet it: over real sockets, against real PostgreSQL.
//!
//! Every contract is run twice, with one charge a statement and with many: both are the same code,
//! and nobody outside may be able to tell which it is.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests speak to the database as an outsider would, and fail where they stand"
)]

mod app;
mod bodies;
mod client_gone;
mod connections;
mod content_type;
mod database_faults;
mod draining;
mod expiry;
mod hold;
mod jobs;
mod keys;
mod limits;
mod listing;
mod openapi;
mod overlap;
mod processes;
mod proxy;
mod quotas;
mod raw;
mod reading;
mod refused_heads;
mod replays;
mod request;
mod routing;
mod smuggling;
mod tenants;
mod tombstone;
mod waiting;

/// Defines tests that each get an app of their own, once with each way of writing charges.
macro_rules! contracts {
    ($(
        $(with $settings:expr;)?
        async fn $name:ident($app:ident: &TestApp) $body:block
    )+) => {$(
        mod $name {
            use super::*;

            async fn contract($app: &$crate::app::TestApp) $body

            // A plain function: compiled once, where an async one would be compiled for each contract.
            fn hold(batch_max: &str) {
                let settings: &[&[(&str, &str)]] = &[$($settings)?];
                $crate::app::hold(batch_max, &settings.concat(), |app| Box::pin(contract(app)));
            }

            #[test]
            fn one_by_one() {
                hold("1");
            }

            #[test]
            fn in_batches() {
                hold("128");
            }
        }
    )+};
}
pub(crate) use contracts;
