//! Amounts in minor units and the currencies they are in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount in minor units, from 1 to [`AmountCents::LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "i64", try_from = "i64")]
pub struct AmountCents(i64);

impl AmountCents {
    /// 2^53 − 1: above it a client that reads JSON numbers as doubles (RFC 8259 §6) would see
    /// another amount than the one charged.
    pub const LIMIT: i64 = (1 << 53) - 1;

    /// `None` when `cents` is not from 1 to [`Self::LIMIT`].
    pub fn new(cents: i64) -> Option<Self> {
        (1..=Self::LIMIT).contains(&cents).then_some(Self(cents))
    }

    pub fn get(self) -> i64 {
        self.0
    }
}

impl From<AmountCents> for i64 {
    fn from(amount: AmountCents) -> Self {
        amount.0
    }
}

/// Why a number is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an amount is from 1 to {limit}", limit = AmountCents::LIMIT)]
pub struct AmountOutOfRange;

impl TryFrom<i64> for AmountCents {
    type Error = AmountOutOfRange;

    fn try_from(cents: i64) -> Result<Self, AmountOutOfRange> {
        Self::new(cents).ok_or(AmountOutOfRange)
    }
}

impl fmt::Display for AmountCents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An ISO 4217 code in upper case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// `None` unless `code` is a currency of ISO 4217, spelt in upper case.
    pub fn parse(code: &str) -> Option<Self> {
        let bytes: [u8; 3] = code.as_bytes().try_into().ok()?;
        let upper = bytes.iter().all(u8::is_ascii_uppercase);
        (upper && iso_currency::Currency::from_code(code).is_some()).then_some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("invariant: three ASCII letters, checked by parse")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Currency {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&code).ok_or_else(|| serde::de::Error::custom("not an ISO 4217 currency code"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_positive_and_exact_in_a_double() {
        for (cents, accepted) in
            [(i64::MIN, false), (-1, false), (0, false), (1, true), (4900, true)]
        {
            assert_eq!(AmountCents::new(cents).is_some(), accepted, "{cents}");
        }
        assert!(AmountCents::new(AmountCents::LIMIT).is_some());
        assert!(AmountCents::new(AmountCents::LIMIT + 1).is_none());
        assert!(AmountCents::new(i64::MAX).is_none());
    }

    #[test]
    fn an_amount_that_is_read_is_checked_like_one_that_is_made() {
        let read = |text| serde_json::from_str::<AmountCents>(text);
        assert_eq!(read("4900").expect("an amount").get(), 4900);
        assert_eq!(serde_json::to_string(&read("4900").expect("an amount")).expect("text"), "4900");
        for text in ["0", "-1", "9007199254740992", "9223372036854775808", "4900.0", "\"4900\""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_currency_is_an_upper_case_iso_4217_code() {
        for code in ["BRL", "USD", "EUR", "JPY"] {
            assert_eq!(Currency::parse(code).expect(code).as_str(), code);
        }
        // The last one has a Cyrillic letter that looks like a Latin B.
        for code in ["", "brl", "Brl", "BR", "BRLL", "ZZZ", "BR1", " BRL", "ВRL"] {
            assert!(Currency::parse(code).is_none(), "{code:?}");
        }
    }
}
