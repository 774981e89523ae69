//! The inbox: which events a consumer has applied. It knows nothing of what an event means.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::{Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&RECORD];

/// The events that were not there before: the ones to apply in the same transaction.
#[derive(Debug, Default)]
pub struct Recorded {
    pub new: HashSet<Uuid>,
    /// Older than the window, or of an age that nobody knows, and not there: whether they were
    /// applied cannot be told. They were not recorded.
    pub too_old: HashSet<Uuid>,
    /// When the first of them was written, by the database's clock; `None` when none was new.
    pub at: Option<Timestamp>,
}

/// An event as it is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub event: Uuid,
    /// When the event was written, by a clock that all its copies have from one place.
    pub written: Option<Timestamp>,
}

// A copy of an event that an open transaction of another consumer has recorded waits here until
// that one ends. All consumers take the ids in the same order, so two never wait for each other.
const RECORD: Statement = Statement::new(
    "record events in the inbox",
    "WITH given AS MATERIALIZED (
         SELECT id,
                coalesce(written < clock_timestamp() - $4::bigint * interval '1 ms', true) AS too_old
         FROM unnest($2::uuid[], $3::timestamptz[]) AS entry (id, written)
     ),
     recorded AS (
         INSERT INTO inbox (consumer, event_id)
         SELECT $1, id FROM given WHERE NOT too_old
         ORDER BY id
         ON CONFLICT DO NOTHING
         RETURNING event_id, processed_at
     )
     SELECT event_id, processed_at FROM recorded
     UNION ALL
     SELECT id, NULL FROM given
     WHERE too_old
       -- Not NOT EXISTS, which may become a scan of all of the consumer's rows.
       AND (SELECT event_id FROM inbox WHERE consumer = $1 AND event_id = given.id) IS NULL",
);

/// Records the events that the consumer has not recorded before and that are not older than
/// `window` by the database's clock. The first statement of the
/// transaction that applies them: a check before it would let two copies through.
///
/// # Errors
/// [`Error::Statement`].
pub async fn record(
    tx: &Transaction<'_>,
    consumer: &str,
    entries: &[Entry],
    window: Duration,
) -> Result<Recorded, Error> {
    let events: Vec<Uuid> = entries.iter().map(|entry| entry.event).collect();
    let written: Vec<Option<Timestamp>> = entries.iter().map(|entry| entry.written).collect();
    let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let rows = tx.query(&RECORD, &[&consumer, &events, &written, &window]).await?;
    let mut recorded = Recorded::default();
    for row in rows {
        match row.get::<_, Option<Timestamp>>(1) {
            Some(at) => {
                recorded.at = recorded.at.or(Some(at));
                recorded.new.insert(row.get(0));
            }
            None => {
                recorded.too_old.insert(row.get(0));
            }
        }
    }
    Ok(recorded)
}
