//! The inbox: which events a consumer has applied. It knows nothing of what an event means.
//!
//! Its partitions, a week of ids each, are made and dropped by the database (`keep_inbox()` in
//! `migrations/`), whenever a consumer says that it is there.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&RECORD, &KEEP];

/// The events that were not there before: the ones to apply in the same transaction.
#[derive(Debug, Default)]
pub struct Recorded {
    pub new: HashSet<Uuid>,
    /// Not there, and not of a time that the inbox can tell of: whether they were applied is not
    /// known. They were not recorded.
    pub untold: HashSet<Uuid>,
    /// When the first of them was written, by the database's clock; `None` when none was new.
    pub at: Option<Timestamp>,
}

/// An event as it is recorded.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub event: Uuid,
    /// When the event was written, as its id says; `None` for an id that is no UUIDv7.
    pub written: Option<Timestamp>,
}

// A copy of an event that an open transaction of another consumer has recorded waits here until
// that one ends. All consumers take the ids in the same order, so two never wait for each other.
const RECORD: Statement = Statement::new(
    "record events in the inbox",
    "WITH given AS MATERIALIZED (
         SELECT id,
                coalesce(written NOT BETWEEN told.since AND told.until, true) AS untold
         FROM unnest($2::uuid[], $3::timestamptz[]) AS entry (id, written),
              (SELECT greatest(clock_timestamp() - $4::bigint * interval '1 ms', complete_since),
                      -- There are always partitions for longer.
                      clock_timestamp() + interval '1 day'
               FROM inbox_horizon) AS told (since, until)
     ),
     recorded AS (
         INSERT INTO inbox (consumer, event_id)
         SELECT $1, id FROM given WHERE NOT untold
         ORDER BY id
         ON CONFLICT DO NOTHING
         RETURNING event_id, processed_at
     )
     SELECT event_id, processed_at FROM recorded
     UNION ALL
     SELECT id, NULL FROM given
     WHERE untold
       -- Not NOT EXISTS, which may become a scan of all of the consumer's rows.
       AND (SELECT event_id FROM inbox WHERE consumer = $1 AND event_id = given.id) IS NULL",
);

/// Records the events that the consumer has not recorded before, of those that are not older than
/// `window`, nor than what the inbox still has, nor more than a day ahead, by the database's clock.
/// The first statement of the transaction that applies them: a check before it would let two copies
/// through.
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
                recorded.untold.insert(row.get(0));
            }
        }
    }
    Ok(recorded)
}

const KEEP: Statement = Statement::new(
    "keep the partitions of the inbox",
    "INSERT INTO inbox_consumers (consumer, retention) VALUES ($1, $2::bigint * interval '1 ms')
     ON CONFLICT (consumer) DO UPDATE
     SET retention = excluded.retention, seen_at = clock_timestamp()
     RETURNING seen_at",
);

/// Says that the consumer is there and how far back it must be able to tell. Partitions are made for
/// the next weeks, and those go that no consumer needs. Returns the time, by the database's clock.
///
/// # Errors
/// [`Error`]; running it again is safe, and so is running several at once.
pub async fn keep(
    connection: &Connection,
    consumer: &str,
    window: Duration,
) -> Result<Timestamp, Error> {
    let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    let row = connection.query_opt(&KEEP, &[&consumer, &window]).await?;
    row.map(|row| row.get(0)).ok_or(Error::Unreadable { what: "when a consumer was seen" })
}
