//! The Idempotency-Key: what a client sends so that a retry is the same operation.
//!
//! Whether a key was seen before is not known here; that is the database's word alone.

use std::fmt;

use sfv::{BareItem, Item, Parser};
use uuid::Uuid;

/// An operation that takes an idempotency key. The same key on two endpoints is two operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    CreateCharge,
}

impl Endpoint {
    pub const ALL: [Self; 1] = [Self::CreateCharge];

    /// The route pattern: what is stored beside the key and what labels the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreateCharge => "POST /charges",
        }
    }
}

/// A UUID that the client chose, neither nil nor max.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Uuid);

/// Why a header value is not an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("the value is not a UUID in its hyphenated form, bare or in double quotes")]
    NotAUuid,
    #[error("the nil and the max UUID are not keys; use a random one for each operation")]
    NotUnique,
}

impl IdempotencyKey {
    /// Reads one header value: a bare UUID, or an RFC 9651 String that holds one.
    ///
    /// Both spellings, in either case, are the same key. A list, a parameter, braces, `urn:uuid:`
    /// and the form without hyphens are refused: two spellings that one server takes for one key
    /// and another for two are how a charge happens twice.
    ///
    /// # Errors
    /// [`InvalidKey`] says what to change; it never holds the value.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidKey> {
        let text = std::str::from_utf8(value).map_err(|_| InvalidKey::NotAUuid)?;
        let uuid = match text.as_bytes().first() {
            Some(b'"') => hyphenated(&quoted(text)?)?,
            _ => hyphenated(text)?,
        };
        if uuid.is_nil() || uuid.is_max() {
            return Err(InvalidKey::NotUnique);
        }
        Ok(Self(uuid))
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }
}

/// The content of an RFC 9651 String without parameters.
fn quoted(text: &str) -> Result<String, InvalidKey> {
    let item = Parser::new(text).parse::<Item>().map_err(|_| InvalidKey::NotAUuid)?;
    match item.bare_item {
        BareItem::String(string) if item.params.is_empty() => Ok(string.as_str().to_owned()),
        _ => Err(InvalidKey::NotAUuid),
    }
}

fn hyphenated(text: &str) -> Result<Uuid, InvalidKey> {
    // The parser knows four forms; only the hyphenated one has 36 characters.
    const LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;
    if text.len() != LENGTH {
        return Err(InvalidKey::NotAUuid);
    }
    Uuid::try_parse(text).map_err(|_| InvalidKey::NotAUuid)
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

    #[test]
    fn bare_quoted_and_upper_case_are_the_same_key() {
        let key = IdempotencyKey::parse(BARE.as_bytes()).expect("bare");
        for spelling in [format!("\"{BARE}\""), BARE.to_uppercase(), format!("\"{BARE}\"  ")] {
            assert_eq!(IdempotencyKey::parse(spelling.as_bytes()), Ok(key), "{spelling}");
        }
        assert_eq!(key.to_string(), BARE);
    }

    #[test]
    fn every_other_spelling_is_refused() {
        let malformed = [
            String::new(),
            " ".into(),
            "abc".into(),
            "\"\"".into(),
            BARE.replace('-', ""),
            BARE[1..].into(),
            format!("{BARE}0"),
            format!("{{{BARE}}}"),
            format!("urn:uuid:{BARE}"),
            format!("\"{BARE}"),
            format!("{BARE}\""),
            format!("'{BARE}'"),
            format!("\"{BARE}\";a=1"),
            format!("{BARE};a=1"),
            format!("{BARE}, {BARE}"),
            format!("\"{BARE}\", \"{BARE}\""),
            format!("\"\\{BARE}\""),
            format!("\"{}\"", BARE.replace('-', "")),
            BARE.replace('8', "g"),
            "1-1-1-1-1".into(),
            "8e03978e-40d5-43e8-bc936-894a57f9324".into(),
            "8e03978e-40d5-43e8-bc93-6894a57f932é".into(),
            "x".repeat(8192),
        ];
        for value in malformed {
            let parsed = IdempotencyKey::parse(value.as_bytes());
            assert_eq!(parsed, Err(InvalidKey::NotAUuid), "{value:?}");
        }
        assert_eq!(IdempotencyKey::parse(b"\xe9"), Err(InvalidKey::NotAUuid));
    }

    #[test]
    fn nil_and_max_are_not_keys() {
        for uuid in [Uuid::nil(), Uuid::max()] {
            let value = uuid.to_string();
            assert_eq!(IdempotencyKey::parse(value.as_bytes()), Err(InvalidKey::NotUnique));
        }
    }
}
