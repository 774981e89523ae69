//! A charge: what is asked for, and what is stored.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::card_number;
use crate::money::{AmountCents, Currency};

/// A UUIDv7: new rows land side by side in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChargeId(pub Uuid);

impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a client asks for, already valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCharge {
    pub amount: AmountCents,
    pub currency: Currency,
    pub description: Option<Description>,
}

impl NewCharge {
    /// The members in which two commands differ, by their names in the API.
    pub fn differing_members(&self, other: &Self) -> Vec<&'static str> {
        [
            ("amountCents", self.amount != other.amount),
            ("currency", self.currency != other.currency),
            ("description", self.description != other.description),
        ]
        .into_iter()
        .filter_map(|(member, differs)| differs.then_some(member))
        .collect()
    }
}

/// A charge as it is stored and answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Charge {
    pub id: ChargeId,
    pub amount_cents: AmountCents,
    pub currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Description>,
    pub status: ChargeStatus,
    /// To the microsecond, which is what PostgreSQL keeps.
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeStatus {
    Pending,
    Succeeded,
    Declined,
}

impl ChargeStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Succeeded => "succeeded",
            Self::Declined => "declined",
        }
    }

    /// `None` for a status that this version does not know.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Succeeded, Self::Declined]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// Free text of the client, kept byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Description(String);

/// Why a text is not a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDescription {
    #[error("must have at most {} characters", Description::MAX_CHARACTERS)]
    TooLong,
    #[error("must not contain U+0000")]
    Nul,
    #[error("must not contain a card number; a payment card never belongs in free text")]
    CardNumber,
}

impl Description {
    pub const MAX_CHARACTERS: usize = 500;

    /// # Errors
    /// [`InvalidDescription`] names the rule that `text` breaks, never the text.
    pub fn parse(text: &str) -> Result<Self, InvalidDescription> {
        if text.chars().count() > Self::MAX_CHARACTERS {
            return Err(InvalidDescription::TooLong);
        }
        if text.contains('\0') {
            return Err(InvalidDescription::Nul);
        }
        if card_number::is_in(text) {
            return Err(InvalidDescription::CardNumber);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_bounded_in_characters_not_bytes() {
        assert!(Description::parse(&"é".repeat(500)).is_ok());
        assert_eq!(Description::parse(&"é".repeat(501)), Err(InvalidDescription::TooLong));
        assert_eq!(Description::parse("a\0b"), Err(InvalidDescription::Nul));
        assert!(
            Description::parse("'; DROP TABLE charges; -- {{7*7}} ../../etc \r\n\u{202e}").is_ok()
        );
    }

    #[test]
    fn a_card_number_is_refused() {
        let paid = Description::parse("paid with 4111 1111 1111 1111 today");
        assert_eq!(paid, Err(InvalidDescription::CardNumber));
    }

    #[test]
    fn differing_members_are_named() {
        let charge = |cents, currency, text: Option<&str>| NewCharge {
            amount: AmountCents::new(cents).expect("amount"),
            currency: Currency::parse(currency).expect("currency"),
            description: text.map(|text| Description::parse(text).expect("description")),
        };
        let first = charge(4900, "BRL", None);
        assert!(first.differing_members(&first).is_empty());
        assert_eq!(first.differing_members(&charge(1, "BRL", None)), ["amountCents"]);
        let all = first.differing_members(&charge(1, "USD", Some("x")));
        assert_eq!(all, ["amountCents", "currency", "description"]);
    }
}
