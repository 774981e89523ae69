//! Outbox rows to Kafka: at least once, in the order of each aggregate, with any number of relays.
//!
//! `relay.rs` is the loop, one for each topic; the other files are what it leans on. It knows nothing of charges: any
//! service that inserts a row into the outbox gets it published.

mod backlog;
mod backoff;
mod contract;
mod destination;
mod event;
mod exchange;
mod in_flight;
mod leases;
mod metrics;
mod pace;
mod publisher;
mod pulse;
mod reach;
mod relay;
mod retention;
mod routes;
mod service;
mod session;
mod settings;
mod writer;

pub use backlog::BacklogMetrics;
pub use destination::Destination;
pub use leases::{Keeper, Leases, Occupant};
pub use metrics::Metrics;
pub use publisher::{ErrorClass, Publisher};
pub use relay::{Pass, Relay};
pub use retention::{Retention, RetentionSettings};
pub use routes::Route;
pub use service::{Error, Service};
pub use session::Session;
pub use settings::{Compression, KafkaSettings, RelaySettings, Settings};
pub use writer::Writer;
