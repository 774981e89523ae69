//! Work that a transaction wrote down and somebody does after its commit: a table of such work is a
//! queue, and this is how every one of them is worked off.
//!
//! A claim is a lease, in one statement and by the database's clock: no transaction is open while the
//! work is done, and what a dead process had claimed is free when its lease has ended. So work is done
//! at least once; who claims a row anew counts an attempt, and with it the old claim is void.

use std::time::Duration;

use uuid::Uuid;

use crate::{Connection, Error, Statement};

/// The statements of one table.
#[derive(Debug)]
pub struct Queue {
    pub(crate) claim: Statement,
    pub(crate) finish: Statement,
    pub(crate) put_off: Statement,
    pub(crate) count: Statement,
}

/// A [`Queue`] of `table`, whose rows have an `id`, a `consumer`, `not_before` (nobody takes the row
/// before then; `infinity`: it was given up), `attempts`, `last_error`, and the time when they were
/// `done`. It needs an index on `(consumer, id)` of the rows that are not done.
macro_rules! queue {
    ($work:literal, $table:literal, $id:literal, $done:literal) => {
        $crate::follow_ups::Queue {
            // MATERIALIZED: a plan that ran the part with the LIMIT twice would claim more than that.
            claim: $crate::Statement::new(
                concat!("claim ", $work),
                concat!(
                    "WITH due AS MATERIALIZED (
                         SELECT ", $id, " AS id FROM ", $table, "
                         WHERE consumer = $1 AND ", $done, " IS NULL AND not_before <= clock_timestamp()
                         ORDER BY ", $id, "
                         LIMIT $2
                         FOR UPDATE SKIP LOCKED
                     )
                     UPDATE ", $table, " AS work
                     SET not_before = clock_timestamp() + $3::bigint * interval '1 ms',
                         attempts = attempts + 1
                     FROM due
                     WHERE work.", $id, " = due.id
                     RETURNING work.", $id, ", work.attempts"
                ),
            ),
            finish: $crate::Statement::new(
                concat!("mark done: ", $work),
                concat!(
                    "UPDATE ", $table, " SET ", $done, " = clock_timestamp(), last_error = NULL
                     WHERE ", $id, " = ANY ($1) AND ", $done, " IS NULL"
                ),
            ),
            put_off: $crate::Statement::new(
                concat!("put off ", $work),
                concat!(
                    "UPDATE ", $table, "
                     SET not_before =
                             coalesce(clock_timestamp() + $3::bigint * interval '1 ms', 'infinity'),
                         last_error = $4
                     WHERE ", $id, " = $1 AND attempts = $2 AND ", $done, " IS NULL"
                ),
            ),
            count: $crate::Statement::new(
                concat!("count ", $work),
                concat!(
                    "SELECT count(*) FILTER (WHERE not_before < 'infinity'),
                            count(*) FILTER (WHERE not_before = 'infinity')
                     FROM ", $table, " WHERE consumer = $1 AND ", $done, " IS NULL"
                ),
            ),
        }
    };
}
pub(crate) use queue;

/// A row that is its claimer's until the lease has ended.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub id: Uuid,
    /// This one included.
    pub attempts: i32,
}

/// Leases the oldest rows that are due, in their order.
///
/// # Errors
/// [`Error::Statement`].
pub async fn claim(
    connection: &Connection,
    queue: &Queue,
    consumer: &str,
    claims_max: i64,
    lease: Duration,
) -> Result<Vec<Claim>, Error> {
    let lease = millis(lease);
    let rows = connection.query(&queue.claim, &[&consumer, &claims_max, &lease]).await?;
    let claim = |row: &tokio_postgres::Row| Claim { id: row.get(0), attempts: row.get(1) };
    let mut claims: Vec<Claim> = rows.iter().map(claim).collect();
    claims.sort_by_key(|claim| claim.id);
    Ok(claims)
}

/// Marks work as done, whoever has its lease by now.
///
/// # Errors
/// [`Error::Statement`].
pub async fn finish(connection: &Connection, queue: &Queue, ids: &[Uuid]) -> Result<u64, Error> {
    connection.execute(&queue.finish, &[&ids]).await
}

/// Gives a claim back, to be taken again after `wait`; `None`: never. Nothing when the claim is void.
///
/// # Errors
/// [`Error::Statement`].
pub async fn put_off(
    connection: &Connection,
    queue: &Queue,
    claim: Claim,
    wait: Option<Duration>,
    error: &str,
) -> Result<u64, Error> {
    let wait = wait.map(millis);
    connection.execute(&queue.put_off, &[&claim.id, &claim.attempts, &wait, &error]).await
}

/// What is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    pub waiting: i64,
    pub given_up: i64,
}

/// # Errors
/// [`Error::Statement`].
pub async fn count(
    connection: &Connection,
    queue: &Queue,
    consumer: &str,
) -> Result<Backlog, Error> {
    let row = connection.query_opt(&queue.count, &[&consumer]).await?;
    let row = row.ok_or(Error::Unreadable { what: "a backlog" })?;
    Ok(Backlog { waiting: row.get(0), given_up: row.get(1) })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
