//! What became of a request with an idempotency key.
//!
//! The documented outcomes are values, not errors: this one enum feeds the HTTP status, the
//! metric label and the log line.

use crate::charge::ChargeId;

/// The answer that is stored with a key and replayed byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub content_type: String,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This request did the work.
    Created(StoredResponse),
    /// An earlier request with this key and payload did.
    Replayed(StoredResponse),
    /// The key belongs to another payload; the members that differ, where they are known.
    PayloadConflict { differing: Vec<&'static str> },
    /// An earlier request with this key and payload is still running.
    InFlight,
    /// An earlier request with this key and payload did, so long ago that its answer is not replayed
    /// any more; the key is kept so that nothing is charged again.
    Expired { charge: ChargeId },
}

impl Outcome {
    /// Every label, so that a metric can show each from the start.
    pub const LABELS: [&'static str; 5] =
        ["created", "replayed", "payload_conflict", "in_flight", "expired"];

    pub fn label(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::Replayed(_) => "replayed",
            Self::PayloadConflict { .. } => "payload_conflict",
            Self::InFlight => "in_flight",
            Self::Expired { .. } => "expired",
        }
    }
}
