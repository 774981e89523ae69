//! The fingerprint: what tells a retry from another payload under the same key.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::charge::NewCharge;

/// SHA-256 of a versioned canonical form of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: i16,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The canonical form that new keys are written with.
    pub const VERSION: i16 = 1;

    /// The fingerprint of a charge command, in the current version.
    pub fn of_charge(charge: &NewCharge) -> Self {
        // The members of the *typed* command, in the order and escaping of RFC 8785. The amount is
        // a string: canonical JSON numbers merge neighbours above 2^53. Members that do not
        // change the charge have no place here.
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct V1<'a> {
            amount_cents: String,
            currency: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
        }
        let canonical = serde_json::to_vec(&V1 {
            amount_cents: charge.amount.to_string(),
            currency: charge.currency.as_str(),
            description: charge.description.as_ref().map(|text| text.as_str()),
        })
        .expect("invariant: strings always serialise");
        Self { version: Self::VERSION, digest: Sha256::digest(canonical).into() }
    }

    /// Rebuilds a fingerprint as it was stored. `None` when `digest` is not 32 bytes long.
    pub fn from_stored(version: i16, digest: &[u8]) -> Option<Self> {
        Some(Self { version, digest: digest.try_into().ok()? })
    }

    pub fn version(&self) -> i16 {
        self.version
    }

    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Description;
    use crate::money::{AmountCents, Currency};

    fn charge(cents: i64, currency: &str, description: Option<&str>) -> NewCharge {
        NewCharge {
            amount: AmountCents::new(cents).expect("amount"),
            currency: Currency::parse(currency).expect("currency"),
            description: description.map(|text| Description::parse(text).expect("description")),
        }
    }

    #[test]
    fn each_member_changes_it() {
        let same = Fingerprint::of_charge(&charge(4900, "BRL", None));
        assert_eq!(same, Fingerprint::of_charge(&charge(4900, "BRL", None)));
        let others = [
            charge(4901, "BRL", None),
            charge(4900, "USD", None),
            charge(4900, "BRL", Some("")),
            charge(4900, "BRL", Some("4900")),
        ];
        for other in others {
            assert_ne!(same, Fingerprint::of_charge(&other), "{other:?}");
        }
    }

    #[test]
    fn neighbours_at_the_edge_of_a_double_differ() {
        let limit = AmountCents::LIMIT;
        let edge = Fingerprint::of_charge(&charge(limit, "BRL", None));
        assert_ne!(edge, Fingerprint::of_charge(&charge(limit - 1, "BRL", None)));
    }

    #[test]
    fn composed_and_decomposed_text_differ() {
        let composed = Fingerprint::of_charge(&charge(1, "BRL", Some("caf\u{e9}")));
        assert_ne!(composed, Fingerprint::of_charge(&charge(1, "BRL", Some("cafe\u{301}"))));
    }

    // Stored keys are checked with the version that wrote them: this value must never change.
    #[test]
    fn version_1_is_pinned() {
        let fingerprint = Fingerprint::of_charge(&charge(4900, "BRL", Some("Caf\u{e9} \"1\"\n")));
        let canonical =
            "{\"amountCents\":\"4900\",\"currency\":\"BRL\",\"description\":\"Café \\\"1\\\"\\n\"}";
        assert_eq!(fingerprint.digest()[..], Sha256::digest(canonical)[..]);
        assert_eq!(fingerprint.version(), 1);
    }
}
