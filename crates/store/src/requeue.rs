//! Dead letters in an operator's hands: looked at, put back into the way of the events, or dropped.
//!
//! What a consumer writes is in `dead_letters`. Whether a letter may be put back is decided by the
//! caller: only it knows what a record must say to be an event.

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::dead_letters::{Letter, letters};
use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] =
    &[&LIST, &FIND, &LOCK, &TAKE_OUT, &FORGET, &IS_SETTLED, &PUBLISH_AGAIN, &PUT_BACK];

// Ids are UUIDv7, so the latest come first.
const LIST: Statement = Statement::new(
    "list dead letters",
    concat!(
        letters!(),
        "WHERE d.id < $1 AND ($2::text IS NULL OR d.consumer = $2) ORDER BY d.id DESC LIMIT $3"
    ),
);

/// The latest dead letters, of one consumer or of all.
///
/// # Errors
/// [`Error::Statement`].
pub async fn list(
    connection: &Connection,
    consumer: Option<&str>,
    letters_max: i64,
) -> Result<Vec<Letter>, Error> {
    let rows = connection.query(&LIST, &[&Uuid::max(), &consumer, &letters_max]).await?;
    Ok(rows.iter().map(Letter::read).collect())
}

const FIND: Statement =
    Statement::new("find a dead letter", concat!(letters!(), "WHERE d.id = $1"));

/// # Errors
/// [`Error::Statement`].
pub async fn find(connection: &Connection, id: Uuid) -> Result<Option<Letter>, Error> {
    Ok(connection.query_opt(&FIND, &[&id]).await?.as_ref().map(Letter::read))
}

const LOCK: Statement =
    Statement::new("lock a dead letter", concat!(letters!(), "WHERE d.id = $1 FOR UPDATE OF d"));

/// The letter, which stays as it is until the transaction ends.
///
/// # Errors
/// [`Error::Statement`].
pub async fn lock(tx: &Transaction<'_>, id: Uuid) -> Result<Option<Letter>, Error> {
    Ok(tx.query_opt(&LOCK, &[&id]).await?.as_ref().map(Letter::read))
}

const TAKE_OUT: Statement =
    Statement::new("take a dead letter out", "DELETE FROM dead_letters WHERE id = $1");

/// # Errors
/// [`Error::Statement`].
pub async fn take_out(tx: &Transaction<'_>, id: Uuid) -> Result<u64, Error> {
    tx.execute(&TAKE_OUT, &[&id]).await
}

// xmin is the transaction that wrote a row: an inbox row of another one came with an effect.
const FORGET: Statement = Statement::new(
    "take an event out of the inbox",
    "DELETE FROM inbox i
     USING dead_letters d
     WHERE d.id = $3 AND i.consumer = $1 AND i.event_id = $2 AND i.xmin = d.xmin",
);

/// Lets the consumer apply the event, if its inbox row was written with this letter.
///
/// # Errors
/// [`Error::Statement`].
pub async fn forget(
    tx: &Transaction<'_>,
    consumer: &str,
    event: Uuid,
    letter: Uuid,
) -> Result<u64, Error> {
    tx.execute(&FORGET, &[&consumer, &event, &letter]).await
}

const IS_SETTLED: Statement = Statement::new(
    "look an event up in the inbox",
    "SELECT FROM inbox WHERE consumer = $1 AND event_id = $2",
);

/// Is the event settled for the consumer?
///
/// # Errors
/// [`Error::Statement`].
pub async fn is_settled(tx: &Transaction<'_>, consumer: &str, event: Uuid) -> Result<bool, Error> {
    Ok(tx.query_opt(&IS_SETTLED, &[&consumer, &event]).await?.is_some())
}

const PUBLISH_AGAIN: Statement = Statement::new(
    "publish an event once more",
    "UPDATE outbox
     SET published_topic = CASE WHEN published_at IS NULL THEN published_topic END,
         published_partition = CASE WHEN published_at IS NULL THEN published_partition END,
         published_offset = CASE WHEN published_at IS NULL THEN published_offset END,
         published_at = NULL,
         headers = headers || jsonb_build_object('replay', $3::text)
     WHERE tenant_id = $1 AND id = $2",
);

/// Lets the relay publish the event's own row once more. Returns whether there is one; a parked row
/// stays parked.
///
/// # Errors
/// [`Error::Statement`].
pub async fn publish_again(
    tx: &Transaction<'_>,
    tenant: &str,
    event: Uuid,
    mark: &str,
) -> Result<bool, Error> {
    Ok(tx.execute(&PUBLISH_AGAIN, &[&tenant, &event, &mark]).await? == 1)
}

/// An event as a dead letter tells it.
#[derive(Debug, Clone, Copy)]
pub struct Retold<'a> {
    pub tenant: &'a str,
    pub id: Uuid,
    pub aggregate_id: &'a str,
    pub aggregate_version: Option<i64>,
    pub event_type: &'a str,
    pub payload: &'a [u8],
    pub headers: &'a Value,
    /// Now, when the record does not say.
    pub created_at: Option<Timestamp>,
}

const PUT_BACK: Statement = Statement::new(
    "put an event back into the outbox",
    "INSERT INTO outbox (
         tenant_id, id, aggregate_id, aggregate_version, event_type, payload, headers, created_at
     )
     VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, clock_timestamp()))",
);

/// Writes the outbox row of an event that has none any more.
///
/// # Errors
/// [`Error::Statement`].
pub async fn put_back(tx: &Transaction<'_>, event: &Retold<'_>) -> Result<u64, Error> {
    let params: [&(dyn ToSql + Sync); 8] = [
        &event.tenant,
        &event.id,
        &event.aggregate_id,
        &event.aggregate_version,
        &event.event_type,
        &event.payload,
        &event.headers,
        &event.created_at,
    ];
    tx.execute(&PUT_BACK, &params).await
}
