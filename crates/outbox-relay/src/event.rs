//! A row as the record Kafka gets: CloudEvents, Kafka binding, binary mode. The payload is the
//! row's bytes as they are; what the row says of itself goes into headers.

use std::collections::BTreeMap;

use rdkafka::message::{Header, OwnedHeaders};
use store::outbox::relay::OutboxRecord;

use crate::contract;

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
        contract::check(record)?;
        let Some(payload) = &record.payload else {
            let bytes = record.payload_bytes;
            return Err(format!(
                "the payload has {bytes} bytes, more than kafka.message_bytes_max"
            ));
        };
        let extra = contract::headers(record)?;
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
