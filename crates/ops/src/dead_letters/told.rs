//! What the record of a dead letter says of its event, by the rules of the consumer: one `ce_id`,
//! one `ce_type`, a value. A record that says less does not settle its event.

use jiff::Timestamp;
use serde_json::{Value, json};
use store::dead_letters::Letter;

/// An event as its record tells it.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub aggregate_id: String,
    pub aggregate_version: Option<i64>,
    pub event_type: String,
    pub payload: Vec<u8>,
    pub created_at: Option<Timestamp>,
    /// Those that are not the relay's own.
    extra: Vec<(String, String)>,
}

impl Told {
    /// # Errors
    /// Why the record cannot be taken for an event.
    pub fn read(letter: &Letter) -> Result<Self, &'static str> {
        if letter.event_id.is_none() {
            return Err("it has no readable ce_id");
        }
        let event_type = one(letter, "ce_type").ok_or("it has no readable ce_type")?.to_owned();
        let payload = letter.payload.clone().filter(|payload| !payload.is_empty());
        let payload = payload.ok_or("its value is empty")?;
        let key = letter.key.as_deref().and_then(|key| std::str::from_utf8(key).ok());
        let aggregate_id = one(letter, "ce_subject").or(key).filter(|id| !id.is_empty());
        let aggregate_id =
            aggregate_id.ok_or("neither ce_subject nor the key names an aggregate")?;
        let extra = all(letter).filter(|(name, _)| !name.starts_with("ce_") && *name != "replay");
        Ok(Self {
            aggregate_id: aggregate_id.to_owned(),
            aggregate_version: one(letter, "ce_sequence").and_then(|text| text.parse().ok()),
            event_type,
            payload,
            created_at: one(letter, "ce_time").and_then(|text| text.parse().ok()),
            extra: extra.filter_map(|(name, text)| Some((name.into(), text?.into()))).collect(),
        })
    }

    /// The headers of an outbox row, marked with what published it once more.
    pub fn headers(&self, mark: &str) -> Value {
        let mut headers = json!({ "replay": mark });
        for (name, text) in &self.extra {
            headers[name] = json!(text);
        }
        headers
    }
}

/// Whose event it is; `default` when the record does not say.
pub fn tenant(letter: &Letter) -> &str {
    one(letter, "ce_tenantid").unwrap_or("default")
}

/// The text of the one header of this name.
fn one<'a>(letter: &'a Letter, name: &str) -> Option<&'a str> {
    let mut found = all(letter).filter(|(found, _)| *found == name);
    let (_, text) = found.next()?;
    if found.next().is_some() { None } else { text.filter(|text| !text.is_empty()) }
}

/// Names and texts; no text for a value that is none.
fn all(letter: &Letter) -> impl Iterator<Item = (&str, Option<&str>)> {
    let headers = letter.headers.as_array().map(Vec::as_slice).unwrap_or_default();
    headers.iter().filter_map(|header| Some((header["name"].as_str()?, header["value"].as_str())))
}
