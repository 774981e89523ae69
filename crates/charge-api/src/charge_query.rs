//! The query of GET /charges: from text to what is asked for, or to the parameter that is wrong.
//!
//! Strict like a body: a parameter that is misspelt or given twice must not give another list than
//! the one that was asked for.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{ChargeId, IdempotencyKey};
use uuid::Uuid;

use crate::api_error::ApiError;

const CURSOR: &str = "cursor";
const IDEMPOTENCY_KEY: &str = "idempotencyKey";
const LIMIT: &str = "limit";
const PARAMETERS: [&str; 3] = [CURSOR, IDEMPOTENCY_KEY, LIMIT];

/// Charges of one page.
pub const LIMIT_MAX: u16 = 100;
pub const LIMIT_DEFAULT: u16 = 20;

/// Parameters that are read at all: one more than there are shows every fault there can be.
const PAIRS_MAX: usize = PARAMETERS.len() + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeQuery {
    /// The charge of this key.
    OfKey(IdempotencyKey),
    /// A page, the newest charges first.
    Page { cursor: Cursor, limit: u16 },
}

/// # Errors
/// [`ApiError::InvalidParameter`] for the first parameter that is wrong.
pub fn parse(query: &str) -> Result<ChargeQuery, ApiError> {
    let mut found = [None, None, None];
    for (name, value) in form_urlencoded::parse(query.as_bytes()).take(PAIRS_MAX) {
        let place = PARAMETERS.iter().position(|parameter| *parameter == name);
        let place = place.ok_or(ApiError::InvalidParameter {
            parameter: None,
            why: "there is a parameter other than cursor, idempotencyKey and limit",
        })?;
        if found[place].replace(value).is_some() {
            return Err(invalid(PARAMETERS[place], "is given twice"));
        }
    }
    match found {
        [None, Some(key), None] => IdempotencyKey::parse(key.as_bytes())
            .map(ChargeQuery::OfKey)
            .map_err(|_| invalid(IDEMPOTENCY_KEY, "must be a UUID in its hyphenated form")),
        [_, Some(_), _] => Err(invalid(IDEMPOTENCY_KEY, "stands alone: it asks for one charge")),
        [cursor, None, limit] => Ok(ChargeQuery::Page {
            cursor: cursor.map_or(Ok(Cursor::NEWEST), |text| Cursor::parse(&text))?,
            limit: limit.map_or(Ok(LIMIT_DEFAULT), |text| read_limit(&text))?,
        }),
    }
}

fn read_limit(text: &str) -> Result<u16, ApiError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = if digits { text.parse().ok() } else { None };
    limit
        .filter(|limit| (1..=LIMIT_MAX).contains(limit))
        .ok_or_else(|| invalid(LIMIT, "must be an integer from 1 to 100"))
}

fn invalid(parameter: &'static str, why: &'static str) -> ApiError {
    ApiError::InvalidParameter { parameter: Some(parameter), why }
}

/// A place in a tenant's charges: right below this id. It names no tenant, and gives none away: the
/// charges are always those of whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub ChargeId);

impl Cursor {
    /// Above every id.
    pub const NEWEST: Self = Self(ChargeId(Uuid::max()));

    /// Of the form below. Another form gets another number, and both are read for a while.
    const VERSION: u8 = 1;

    /// A byte for the version and the id, in base64url (RFC 4648 §5) without padding.
    pub fn to_text(self) -> String {
        let mut bytes = vec![Self::VERSION];
        bytes.extend(self.0.0.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn parse(text: &str) -> Result<Self, ApiError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let id = bytes.as_deref().and_then(|bytes| match bytes {
            [Self::VERSION, id @ ..] => Uuid::from_slice(id).ok(),
            _ => None,
        });
        id.map(|id| Self(ChargeId(id)))
            .ok_or_else(|| invalid(CURSOR, "is not one: take it from next as it is"))
    }
}
