//! Dead letters: records that a consumer could not apply, kept whole.

use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&INSERT];

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
