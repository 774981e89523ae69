//! The inbox: which events a consumer has applied. It knows nothing of what an event means.

use std::collections::HashSet;

use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&RECORD];

/// The events that were not there before: the ones to apply in the same transaction.
#[derive(Debug, Default)]
pub struct Recorded {
    pub new: HashSet<Uuid>,
    /// When the first of them was written, by the database's clock; `None` when none was new.
    pub at: Option<Timestamp>,
}

// A copy of an event that an open transaction of another consumer has recorded waits here until
// that one ends. All consumers take the ids in the same order, so two never wait for each other.
const RECORD: Statement = Statement::new(
    "record events in the inbox",
    "INSERT INTO inbox (consumer, event_id)
     SELECT $1, id
     FROM unnest($2::uuid[]) AS id
     ORDER BY id
     ON CONFLICT DO NOTHING
     RETURNING event_id, processed_at",
);

/// Records the events that the consumer has not recorded before. The first statement of the
/// transaction that applies them: a check before it would let two copies through.
///
/// # Errors
/// [`Error::Statement`].
pub async fn record(
    tx: &Transaction<'_>,
    consumer: &str,
    events: &[Uuid],
) -> Result<Recorded, Error> {
    let rows = tx.query(&RECORD, &[&consumer, &events]).await?;
    Ok(Recorded {
        at: rows.first().map(|row| row.get(1)),
        new: rows.iter().map(|row| row.get(0)).collect(),
    })
}
