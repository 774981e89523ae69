//! A record of the topic, as far as it is held against a row.

use jiff::Timestamp;
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub struct Seen {
    pub partition: i32,
    pub offset: i64,
    pub at: Option<Timestamp>,
    pub key: Option<Vec<u8>>,
    /// `None` when there is no value at all, which is not the empty one.
    pub value_sha256: Option<[u8; 32]>,
    /// Tenant and id; `None` when it does not say which event it is.
    pub event: Option<(String, Uuid)>,
    /// An operator let it be published once more.
    pub is_replay: bool,
}

impl Seen {
    pub fn of(message: &BorrowedMessage<'_>) -> Self {
        let header = |name: &str| {
            let mut headers = message.headers()?.iter();
            let value = headers.find(|header| header.key == name)?.value?;
            std::str::from_utf8(value).ok()
        };
        let id = header("ce_id").and_then(|id| Uuid::try_parse(id).ok());
        let at = message.timestamp().to_millis();
        Self {
            partition: message.partition(),
            offset: message.offset(),
            at: at.and_then(|millis| Timestamp::from_millisecond(millis).ok()),
            key: message.key().map(<[u8]>::to_vec),
            value_sha256: message.payload().map(|value| Sha256::digest(value).into()),
            event: header("ce_tenantid").map(str::to_owned).zip(id),
            is_replay: header("replay").is_some(),
        }
    }
}
