//! The sample consumer: a receipt for each charge, and the daily totals, each event once.
//!
//! `issue_receipts` is the only module that knows what a charge is; what makes an effect happen once
//! is the crate `inbox`.

pub mod consumer;
pub mod issue_receipts;
pub mod settings;
