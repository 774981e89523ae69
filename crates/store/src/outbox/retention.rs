//! The end of published rows. What is pending or parked never goes, however old it is, and what goes
//! is first announced: who misses a row can tell whether it may have been deleted.

use std::time::Duration;

use jiff::Timestamp;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&ANNOUNCE, &DELETE];

/// For whoever misses a row.
pub(crate) const READER_STATEMENTS: &[&Statement] = &[&REMOVED_BEFORE];

const ANNOUNCE: Statement = Statement::new(
    "announce the retention of published rows",
    "UPDATE outbox_retention
     SET removed_before = greatest(removed_before, now() - make_interval(secs => $1))
     RETURNING now() - make_interval(secs => $1)",
);

/// Says that rows published longer ago than this may be gone from now on. Returns since when they are
/// kept.
///
/// # Errors
/// [`Error::Statement`].
pub async fn announce(connection: &Connection, keep: Duration) -> Result<Timestamp, Error> {
    let row = connection.query_opt(&ANNOUNCE, &[&keep.as_secs_f64()]).await?;
    Ok(row.ok_or(Error::Unreadable { what: "outbox_retention" })?.get(0))
}

/// How far the clock of a service may be ahead of the database's, by which rows are marked. What is
/// dated by the one is held against the other with this much to spare.
pub const CLOCKS_APART: Duration = Duration::from_secs(10 * 60);

/// What one batch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub deleted: i64,
    /// When the latest of them was published. The next batch starts there.
    pub reached: Option<Timestamp>,
    /// By the database's clock.
    pub at: Timestamp,
}

// By outbox_published. A run goes on where its last batch ended: entries of deleted rows stay in the
// index until vacuum, and while somebody holds a snapshot every scan passes all of them. SKIP LOCKED:
// any number of relays may do this, and a row that an operator is about to replay is left alone.
const DELETE: Statement = Statement::new(
    "delete published rows",
    "WITH old AS MATERIALIZED (
         SELECT tenant_id, id, published_at
         FROM outbox
         WHERE published_at >= coalesce($1::timestamptz, '-infinity') AND published_at < $2
           AND parked_at IS NULL
         ORDER BY published_at
         LIMIT $3
         FOR UPDATE SKIP LOCKED
     ),
     deleted AS (
         DELETE FROM outbox o
         USING old
         WHERE o.tenant_id = old.tenant_id AND o.id = old.id
         RETURNING old.published_at
     )
     SELECT count(*), max(published_at), clock_timestamp() FROM deleted",
);

/// Deletes at most `rows_max` rows that were published before this, the oldest first; of those that
/// were published at `from` or later when it is given.
///
/// # Errors
/// [`Error::Statement`]; running it again is safe.
pub async fn delete(
    connection: &Connection,
    from: Option<Timestamp>,
    before: Timestamp,
    rows_max: i64,
) -> Result<Batch, Error> {
    let row = connection.query_opt(&DELETE, &[&from, &before, &rows_max]).await?;
    let row = row.ok_or(Error::Unreadable { what: "a batch of retention" })?;
    Ok(Batch { deleted: row.get(0), reached: row.get(1), at: row.get(2) })
}

const REMOVED_BEFORE: Statement = Statement::new(
    "ask up to when published rows may be gone",
    "SELECT nullif(removed_before, '-infinity') FROM outbox_retention",
);

/// Every row that retention has deleted was published before this; `None`: it has deleted none.
///
/// # Errors
/// [`Error::Statement`].
pub async fn removed_before(connection: &Connection) -> Result<Option<Timestamp>, Error> {
    let row = connection.query_opt(&REMOVED_BEFORE, &[]).await?;
    Ok(row.ok_or(Error::Unreadable { what: "outbox_retention" })?.get(0))
}
