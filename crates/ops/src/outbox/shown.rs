//! Rows of the outbox as people and scripts see them.

use serde_json::{Value, json};
use store::outbox::operate::{Entry, State};

use crate::answer::{Answer, Format};
use crate::table::{pairs, printable, table};

pub fn rows(rows: &[Entry]) -> String {
    if rows.is_empty() {
        return "no rows\n".into();
    }
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            [
                row.id.to_string(),
                row.tenant_id.clone(),
                row.aggregate_id.clone(),
                row.event_type.clone(),
                state(row).into(),
                format!("{:.3}", row.created_at),
                row.last_error.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table(["id", "tenant", "aggregate", "event type", "state", "written", "last error"], &cells)
}

pub fn json(rows: &[Entry]) -> Vec<Value> {
    rows.iter().map(row_json).collect()
}

pub fn whole(format: Format, row: &Entry, payload: Option<&[u8]>) -> Answer {
    let text = payload.map(String::from_utf8_lossy);
    let mut json = row_json(row);
    if let Some(text) = &text {
        json["payload"] = json!(text);
    }
    Answer::new(format, &json, || {
        let maybe = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let place = match (&row.published_topic, row.published_partition, row.published_offset) {
            (Some(topic), Some(partition), Some(offset)) => {
                Some(format!("{topic}, partition {partition}, offset {offset}"))
            }
            _ => None,
        };
        let mut lines = vec![
            ("id", row.id.to_string()),
            ("tenant", row.tenant_id.clone()),
            ("aggregate", row.aggregate_id.clone()),
            ("aggregate version", maybe(row.aggregate_version.map(|it| it.to_string()))),
            ("event type", row.event_type.clone()),
            ("state", state(row).into()),
            ("seq", row.seq.to_string()),
            ("bucket", row.bucket.to_string()),
            ("written", row.created_at.to_string()),
            ("published", maybe(row.published_at.map(|it| it.to_string()))),
            ("published to", maybe(place)),
            ("parked", maybe(row.parked_at.map(|it| it.to_string()))),
            ("attempts", row.attempts.to_string()),
            ("last error", maybe(row.last_error.clone())),
            ("headers", row.headers.to_string()),
            ("payload", format!("{} bytes", row.payload_bytes)),
        ];
        match &text {
            Some(text) => lines.push(("", printable(text))),
            None => lines.push(("", "(hidden: --payload shows it)".into())),
        }
        pairs(&lines)
    })
}

fn row_json(row: &Entry) -> Value {
    json!({
        "id": row.id,
        "tenant": row.tenant_id,
        "seq": row.seq,
        "bucket": row.bucket,
        "aggregate": row.aggregate_id,
        "aggregateVersion": row.aggregate_version,
        "eventType": row.event_type,
        "state": state(row),
        "payloadBytes": row.payload_bytes,
        "headers": row.headers,
        "writtenAt": row.created_at,
        "publishedAt": row.published_at,
        "topic": row.published_topic,
        "partition": row.published_partition,
        "offset": row.published_offset,
        "attempts": row.attempts,
        "lastError": row.last_error,
        "parkedAt": row.parked_at,
    })
}

fn state(row: &Entry) -> &'static str {
    match row.state() {
        State::Pending => "pending",
        State::Parked => "parked",
        State::Published => "published",
    }
}
