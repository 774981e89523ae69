//! Dead letters: records that a consumer could not apply, kept whole, and on their way to a topic.

use jiff::Timestamp;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::follow_ups::{Queue, queue};
use crate::{Connection, Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[
    &INSERT,
    &READ,
    &PUBLICATIONS.claim,
    &PUBLICATIONS.finish,
    &PUBLICATIONS.put_off,
    &PUBLICATIONS.count,
];

/// The letters that are to be published. Each is there from the moment that it is written.
pub const PUBLICATIONS: Queue =
    queue!("dead letters to publish", "dead_letter_publications", "letter_id", "published_at");

#[derive(Debug, Clone, Copy)]
pub struct DeadLetter<'a> {
    pub consumer: &'a str,
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Kafka's, in milliseconds; -1 when the record has none.
    pub timestamp: i64,
    pub event_id: Option<Uuid>,
    pub key: Option<&'a [u8]>,
    /// Array of `{"name", "value" | "hex"}`.
    pub headers: &'a Value,
    pub payload: Option<&'a [u8]>,
    /// No U+0000: PostgreSQL has no text for it.
    pub reason: &'a str,
    pub attempts: i32,
}

const INSERT: Statement = Statement::new(
    "insert a dead letter",
    "INSERT INTO dead_letters (
         consumer, source_topic, source_partition, source_offset, source_timestamp,
         event_id, key, headers, payload, reason, attempts
     )
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
     ON CONFLICT ON CONSTRAINT dead_letters_source DO NOTHING",
);

/// Is it new? A record that Kafka delivers again is not.
///
/// # Errors
/// [`Error::Statement`].
pub async fn insert(tx: &Transaction<'_>, letter: &DeadLetter<'_>) -> Result<bool, Error> {
    let params: [&(dyn ToSql + Sync); 11] = [
        &letter.consumer,
        &letter.topic,
        &letter.partition,
        &letter.offset,
        &letter.timestamp,
        &letter.event_id,
        &letter.key,
        &letter.headers,
        &letter.payload,
        &letter.reason,
        &letter.attempts,
    ];
    Ok(tx.execute(&INSERT, &params).await? == 1)
}

/// A dead letter as it is kept.
#[derive(Debug, Clone)]
pub struct Letter {
    pub id: Uuid,
    pub consumer: String,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Kafka's, in milliseconds; -1 when the record has none.
    pub timestamp: i64,
    pub event_id: Option<Uuid>,
    pub key: Option<Vec<u8>>,
    /// Array of `{"name", "value" | "hex"}`.
    pub headers: Value,
    pub payload: Option<Vec<u8>>,
    pub reason: String,
    pub attempts: i32,
    pub created_at: Timestamp,
    /// When it was in the dead-letter topic.
    pub published_at: Option<Timestamp>,
    /// Why it is not, after a failure.
    pub publish_error: Option<String>,
}

impl Letter {
    pub(crate) fn read(row: &Row) -> Self {
        Self {
            id: row.get(0),
            consumer: row.get(1),
            topic: row.get(2),
            partition: row.get(3),
            offset: row.get(4),
            timestamp: row.get(5),
            event_id: row.get(6),
            key: row.get(7),
            headers: row.get(8),
            payload: row.get(9),
            reason: row.get(10),
            attempts: row.get(11),
            created_at: row.get(12),
            published_at: row.get(13),
            publish_error: row.get(14),
        }
    }
}

macro_rules! letters {
    () => {
        "SELECT d.id, d.consumer, d.source_topic, d.source_partition, d.source_offset,
                d.source_timestamp, d.event_id, d.key, d.headers, d.payload, d.reason, d.attempts,
                d.created_at, p.published_at, p.last_error
         FROM dead_letters d
         LEFT JOIN dead_letter_publications p ON p.letter_id = d.id "
    };
}
pub(crate) use letters;

const READ: Statement =
    Statement::new("read dead letters", concat!(letters!(), "WHERE d.id = ANY ($1)"));

/// Those of these letters that are still there.
///
/// # Errors
/// [`Error::Statement`].
pub async fn read(connection: &Connection, ids: &[Uuid]) -> Result<Vec<Letter>, Error> {
    let rows = connection.query(&READ, &[&ids]).await?;
    Ok(rows.iter().map(Letter::read).collect())
}
