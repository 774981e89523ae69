//! A record as Kafka hands it over, and the event that its headers say it is (CloudEvents, Kafka
//! binding, binary mode). What the payload means is the handler's business.

use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

/// A record, owned: it outlives the client's buffers, a retry and a rebalance.
#[derive(Debug, Clone)]
pub struct Record {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    /// Milliseconds since 1970; -1 when the record has none.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub payload: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Option<Vec<u8>>,
}

/// Why a record cannot be taken for an event. No retry helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("there is no {0} header")]
    Missing(&'static str),
    #[error("there are several {0} headers")]
    Several(&'static str),
    #[error("the {0} header cannot be read")]
    Invalid(&'static str),
    #[error("the value is empty")]
    Empty,
}

/// What the headers say about the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What is applied once, however many records carry it.
    pub id: Uuid,
    pub event_type: String,
    /// When the event was written, by the clock of the database that it was written to.
    pub time: Option<Timestamp>,
}

impl Envelope {
    /// # Errors
    /// [`Unreadable`] for a record that is no event.
    pub fn read(record: &Record) -> Result<Self, Unreadable> {
        let id = record.event_id()?;
        let event_type = record.text("ce_type")?.to_owned();
        if record.payload.as_deref().unwrap_or_default().is_empty() {
            return Err(Unreadable::Empty);
        }
        // Only measured: an event without a time is an event.
        let time = record.text("ce_time").ok().and_then(|time| time.parse().ok());
        Ok(Self { id, event_type, time })
    }
}

#[derive(Debug, Clone)]
pub struct Event {
    pub envelope: Envelope,
    record: Record,
}

impl Event {
    /// # Errors
    /// As [`Envelope::read`]; the record is given back.
    pub fn read(record: Record) -> Result<Self, Box<(Record, Unreadable)>> {
        match Envelope::read(&record) {
            Ok(envelope) => Ok(Self { envelope, record }),
            Err(why) => Err(Box::new((record, why))),
        }
    }

    pub fn id(&self) -> Uuid {
        self.envelope.id
    }

    /// When the event was written, as its id says, which all copies have; `None` for an id that is
    /// no UUIDv7.
    pub fn written(&self) -> Option<Timestamp> {
        time_of(self.envelope.id)
    }

    /// Never empty.
    pub fn payload(&self) -> &[u8] {
        self.record.payload.as_deref().expect("invariant: checked when the event was read")
    }

    /// The record that carries the event, with all its headers.
    pub fn record(&self) -> &Record {
        &self.record
    }

    pub fn into_record(self) -> Record {
        self.record
    }
}

/// The time in a UUIDv7; `None` for an id of another kind.
fn time_of(id: Uuid) -> Option<Timestamp> {
    if id.get_version_num() != 7 {
        return None;
    }
    let (seconds, nanoseconds) = id.get_timestamp()?.to_unix();
    let (seconds, nanoseconds) = (i64::try_from(seconds).ok()?, i32::try_from(nanoseconds).ok()?);
    Timestamp::new(seconds, nanoseconds).ok()
}

impl Record {
    /// # Errors
    /// [`Unreadable`] when the record does not say which event it is, or says it twice.
    pub fn event_id(&self) -> Result<Uuid, Unreadable> {
        const NAME: &str = "ce_id";
        let text = self.text(NAME)?;
        // The hyphenated form and no other: what names an event has one spelling.
        let id = Uuid::try_parse(text).map_err(|_| Unreadable::Invalid(NAME))?;
        if text.len() == uuid::fmt::Hyphenated::LENGTH {
            Ok(id)
        } else {
            Err(Unreadable::Invalid(NAME))
        }
    }

    /// The aggregate's own version that the event made, if the record says it.
    pub fn sequence(&self) -> Option<i64> {
        self.text("ce_sequence").ok()?.parse().ok()
    }

    /// Where the event was made, as W3C Trace Context says it (`traceparent`).
    pub fn created_in(&self) -> Option<&str> {
        self.text("traceparent").ok()
    }

    /// The text of the one header of this name.
    fn text(&self, name: &'static str) -> Result<&str, Unreadable> {
        let mut found = self.headers.iter().filter(|header| header.name == name);
        let value = found.next().ok_or(Unreadable::Missing(name))?.value.as_deref();
        if found.next().is_some() {
            return Err(Unreadable::Several(name));
        }
        match value.map(std::str::from_utf8) {
            Some(Ok(text)) if !text.is_empty() => Ok(text),
            _ => Err(Unreadable::Invalid(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Headers<'a> = &'a [(&'a str, &'a [u8])];

    const ID: &str = "018f0000-0000-7000-8000-000000000001";

    fn record(headers: Headers<'_>, payload: Option<&[u8]>) -> Record {
        let header = |(name, value): &(&str, &[u8])| Header {
            name: (*name).into(),
            value: Some(value.to_vec()),
        };
        Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp: -1,
            key: None,
            headers: headers.iter().map(header).collect(),
            payload: payload.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn an_event_is_what_its_headers_say() {
        let time = b"2026-11-30T21:00:00.123456Z".as_slice();
        let headers = [
            ("ce_type", b"ChargeCreated".as_slice()),
            ("ce_id", ID.as_bytes()),
            ("ce_time", time),
            ("ce_sequence", b"7"),
        ];

        let event = Event::read(record(&headers, Some(b"{}"))).expect("an event");

        assert_eq!(event.id().to_string(), ID);
        assert_eq!(event.envelope.event_type, "ChargeCreated");
        assert_eq!(event.envelope.time.expect("time").to_string(), "2026-11-30T21:00:00.123456Z");
        assert_eq!(event.record().sequence(), Some(7));
        assert_eq!(event.payload(), b"{}");
    }

    #[test]
    fn an_event_was_written_when_its_uuid_v7_says_so_whatever_the_record_says() {
        let written = |id: &[u8]| {
            let time = ("ce_time", b"2026-11-30T21:00:00Z".as_slice());
            let headers = [("ce_id", id), ("ce_type", b"x".as_slice()), time];
            let event = Event::read(record(&headers, Some(b"{}"))).expect("an event");
            event.written().map(|time| time.to_string())
        };
        assert_eq!(written(ID.as_bytes()).as_deref(), Some("2024-04-21T09:32:31.104Z"));
        assert_eq!(written(b"3e6c6c55-4d4c-4a6b-8a0c-0c2c7f3a9f10"), None);
    }

    #[test]
    fn a_record_without_a_readable_envelope_is_no_event() {
        let id = ("ce_id", ID.as_bytes());
        let kind = ("ce_type", b"ChargeCreated".as_slice());
        let braced = format!("{{{ID}}}");
        let value = Some(b"{}".as_slice());
        let cases: [(Headers<'_>, Option<&[u8]>, Unreadable); 9] = [
            (&[], value, Unreadable::Missing("ce_id")),
            (&[kind], value, Unreadable::Missing("ce_id")),
            (&[("ce_id", b"7"), kind], value, Unreadable::Invalid("ce_id")),
            (&[("ce_id", b"\xff\xfe"), kind], value, Unreadable::Invalid("ce_id")),
            (&[("ce_id", braced.as_bytes()), kind], value, Unreadable::Invalid("ce_id")),
            (&[id, id, kind], value, Unreadable::Several("ce_id")),
            (&[id], value, Unreadable::Missing("ce_type")),
            (&[id, kind], None, Unreadable::Empty),
            (&[id, kind], Some(b""), Unreadable::Empty),
        ];
        for (headers, payload, expected) in cases {
            assert_eq!(Envelope::read(&record(headers, payload)), Err(expected));
        }
    }

    #[test]
    fn an_unreadable_time_does_not_make_an_event_unreadable() {
        let headers = [("ce_id", ID.as_bytes()), ("ce_type", b"x"), ("ce_time", b"yesterday")];
        let envelope = Envelope::read(&record(&headers, Some(b"{}"))).expect("an event");
        assert_eq!(envelope.time, None);
    }
}
