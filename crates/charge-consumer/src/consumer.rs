//! The inbox around the sample effect. From here a record goes to `inbox/src/consumer.rs`, which
//! records its event first and calls [`IssueReceipts`] in the same transaction.

use inbox::{BuildError, Inbox};
use prometheus::Registry;
use telemetry::Readiness;

use crate::issue_receipts::IssueReceipts;
use crate::settings::Settings;

/// How PostgreSQL and Kafka list this process.
pub const NAME: &str = "charge-consumer";

/// # Errors
/// [`BuildError`] when the settings are of no use.
pub fn build(
    settings: &Settings,
    registry: &Registry,
    readiness: &Readiness,
) -> Result<Inbox<IssueReceipts>, BuildError> {
    Inbox::build(&settings.inbox, NAME, IssueReceipts, registry, readiness)
}
