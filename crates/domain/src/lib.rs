//! The vocabulary of Oncebox and its pure rules: what a key, a charge and an outcome are.
//!
//! Nothing here is async, and nothing knows SQL, HTTP or Kafka: a rule of this crate holds whatever
//! carries the request.

pub mod api_key;
mod card_number;
pub mod charge;
pub mod event;
pub mod fingerprint;
pub mod idempotency_key;
pub mod money;
pub mod outcome;
pub mod tenant;

pub use api_key::{ApiKey, NewApiKey};
pub use charge::{Charge, ChargeId, ChargeStatus, Description, NewCharge};
pub use event::{ChargeEvent, OutboxId};
pub use fingerprint::Fingerprint;
pub use idempotency_key::{Endpoint, IdempotencyKey};
pub use money::{AmountCents, Currency};
pub use outcome::{Outcome, StoredResponse};
pub use tenant::TenantId;
