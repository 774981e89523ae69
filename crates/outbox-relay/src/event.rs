//! A row as the record Kafka gets: CloudEvents, Kafka binding, binary mode. The payload is the
//! row's bytes as they are; what the row says of itself goes into headers.
//!
//! This is also where a row that breaks the outbox's contract is found out.

use std::collections::BTreeMap;

use rdkafka::message::{Header, OwnedHeaders};
use store::outbox::relay::OutboxRecord;

/// A key is compared and hashed all along the way; ids are tens of bytes.
const AGGREGATE_ID_BYTES_MAX: usize = 1024;
const EVENT_TYPE_BYTES_MAX: usize = 255;

/// What is sent of a row.
pub struct Event<'a> {
    pub seq: i64,
    pub key: &'a str,
    pub payload: &'a [u8],
    record: &'a OutboxRecord,
    source: &'a str,
    /// The row's own headers.
    extra: BTreeMap<String, String>,
}

impl<'a> Event<'a> {
    /// # Errors
    /// Why the row can never be sent as it is.
    pub fn of(record: &'a OutboxRecord, source: &'a str) -> Result<Self, String> {
        let named = [
            ("aggregate_id", &record.aggregate_id, AGGREGATE_ID_BYTES_MAX),
            ("event_type", &record.event_type, EVENT_TYPE_BYTES_MAX),
        ];
        for (column, value, bytes_max) in named {
            if value.is_empty() {
                return Err(format!("{column} is empty"));
            }
            if value.len() > bytes_max {
                return Err(format!("{column} has {} bytes, more than {bytes_max}", value.len()));
            }
        }
        let Some(payload) = &record.payload else {
            let bytes = record.payload_bytes;
            return Err(format!(
                "the payload has {bytes} bytes, more than kafka.message_bytes_max"
            ));
        };
        let extra = match &record.headers {
            None => BTreeMap::new(),
            Some(json) => serde_json::from_str(json)
                .map_err(|_| "headers is not an object of texts".to_owned())?,
        };
        Ok(Self { seq: record.seq, key: &record.aggregate_id, payload, record, source, extra })
    }

    pub fn headers(&self) -> OwnedHeaders {
        let record = self.record;
        let id = record.id.hyphenated().to_string();
        let time = record.created_at.to_string();
        let sequence = record.aggregate_version.map(|version| version.to_string());
        let content_type = self.extra.get("content-type").map_or("application/json", |it| it);
        let own = [
            ("ce_specversion", Some("1.0")),
            ("ce_id", Some(id.as_str())),
            ("ce_type", Some(record.event_type.as_str())),
            ("ce_source", Some(self.source)),
            ("ce_subject", Some(record.aggregate_id.as_str())),
            ("ce_time", Some(time.as_str())),
            ("ce_tenantid", Some(record.tenant_id.as_str())),
            ("ce_sequence", sequence.as_deref()),
            ("content-type", Some(content_type)),
        ];
        // What is ours a row cannot say otherwise.
        let extra = self
            .extra
            .iter()
            .filter(|(name, _)| !name.starts_with("ce_") && name.as_str() != "content-type");
        let mut headers = OwnedHeaders::new_with_capacity(own.len() + self.extra.len());
        for (key, value) in own.into_iter().filter(|(_, value)| value.is_some()) {
            headers = headers.insert(Header { key, value });
        }
        for (key, value) in extra {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        headers
    }
}
