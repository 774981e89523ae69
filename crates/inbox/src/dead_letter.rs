//! Records that cannot be applied: what is kept of them. Publishing them again, or throwing them
//! away, is an operator's decision.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Transaction, dead_letters};
use uuid::Uuid;

use crate::event::{Event, Header, Record, Unreadable};

/// Enough for any message of a library; a reason that quotes a payload of a megabyte is none.
const REASON_CHARS_MAX: usize = 1000;

#[derive(Debug)]
pub struct DeadLetter {
    pub record: Record,
    pub event_id: Option<Uuid>,
    /// Does the record count as the event's, so that copies of it are duplicates? Not when it was
    /// unreadable: another copy may be whole.
    pub stands_for_event: bool,
    /// When that event was written.
    pub written: Option<Timestamp>,
    reason: String,
    attempts: u32,
}

impl DeadLetter {
    pub fn unreadable(record: Record, why: Unreadable) -> Self {
        let event_id = record.event_id().ok();
        let reason = why.to_string();
        Self { record, event_id, stands_for_event: false, written: None, reason, attempts: 1 }
    }

    pub fn refused(event: Event, reason: &str, attempts: u32) -> Self {
        Self {
            event_id: Some(event.id()),
            written: event.written(),
            record: event.into_record(),
            stands_for_event: true,
            // PostgreSQL has no text for U+0000, and a reason may quote the payload.
            reason: reason.chars().filter(|char| *char != '\0').take(REASON_CHARS_MAX).collect(),
            attempts,
        }
    }

    /// An event of a time that the inbox cannot tell of.
    pub fn parked(event: &Event, window: Duration) -> Self {
        let reason = match event.written() {
            Some(written) => format!(
                "the id says {written}, which is longer ago than the dedup window of {} s, or than \
                 the inbox reaches, or in the future: whether it was applied cannot be told",
                window.as_secs()
            ),
            None => {
                "the id is no UUIDv7, so it does not say when the event was written: whether it \
                     was applied cannot be told"
                    .into()
            }
        };
        Self {
            event_id: Some(event.id()),
            record: event.record().clone(),
            stands_for_event: false,
            written: event.written(),
            reason,
            attempts: 0,
        }
    }

    /// Writes the letter, unless it is there from an earlier delivery.
    ///
    /// # Errors
    /// [`store::Error`].
    pub async fn write(&self, tx: &Transaction<'_>, consumer: &str) -> Result<bool, store::Error> {
        let letter = dead_letters::DeadLetter {
            consumer,
            topic: &self.record.topic,
            partition: self.record.partition,
            offset: self.record.offset,
            timestamp: self.record.timestamp,
            event_id: self.event_id,
            key: self.record.key.as_deref(),
            headers: &headers(&self.record),
            payload: self.record.payload.as_deref(),
            reason: &self.reason,
            attempts: i32::try_from(self.attempts).unwrap_or(i32::MAX),
        };
        dead_letters::insert(tx, &letter).await
    }

    /// Somebody has to look. The reason may quote the payload, so it is in the table only.
    pub fn log(&self) {
        tracing::error!(
            topic = %self.record.topic,
            partition = self.record.partition,
            offset = self.record.offset,
            event.id = self.event_id.map(tracing::field::display),
            attempts = self.attempts,
            traceparent = self.record.created_in(),
            "a record could not be applied; see dead_letters"
        );
    }
}

/// An array, since names may repeat and their order is part of the record; hex for what jsonb
/// cannot hold as text (other encodings, and U+0000).
fn headers(record: &Record) -> Value {
    let header = |header: &Header| {
        let text = |bytes| std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        match header.value.as_deref() {
            None => json!({ "name": header.name, "value": null }),
            Some(bytes) => match text(bytes) {
                Some(text) => json!({ "name": header.name, "value": text }),
                None => json!({ "name": header.name, "hex": hex(bytes) }),
            },
        }
    };
    record.headers.iter().map(header).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What [`headers`] wrote, as it was in the record.
pub fn read_headers(headers: &Value) -> Vec<Header> {
    let header = |header: &Value| {
        let value = match (header["value"].as_str(), header["hex"].as_str()) {
            (Some(text), _) => Some(text.as_bytes().to_vec()),
            (None, Some(hex)) => unhex(hex),
            (None, None) => None,
        };
        Some(Header { name: header["name"].as_str()?.to_owned(), value })
    };
    headers.as_array().into_iter().flatten().filter_map(header).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were() {
        let values: [Option<&[u8]>; 5] =
            [None, Some(b""), Some("é\"".as_bytes()), Some(b"a\0b"), Some(b"\xff\x00\x7f")];
        let header =
            |value: &Option<&[u8]>| Header { name: "n".into(), value: value.map(<[u8]>::to_vec) };
        let record = Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp: -1,
            key: None,
            headers: values.iter().map(header).collect(),
            payload: None,
        };
        let back = read_headers(&headers(&record));
        assert_eq!(back, record.headers);
    }
}
