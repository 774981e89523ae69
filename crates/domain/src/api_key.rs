//! API keys: `obx_<prefix>_<secret>`, both in hexadecimal.
//!
//! The prefix names the key and may be shown; the secret has 256 random bits. Only the hash of the
//! whole is kept anywhere, and whoever holds a key here holds its prefix and its hash. The random
//! bits come from the caller.

use std::fmt::{self, Write as _};

use sha2::{Digest, Sha256};

const SCHEME: &str = "obx";
const PREFIX_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// What is kept of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApiKey {
    prefix: String,
    sha256: [u8; 32],
}

/// The key itself, shown once.
pub struct NewApiKey {
    pub key: ApiKey,
    text: String,
}

impl ApiKey {
    /// `None` for anything but the one spelling that [`NewApiKey`] has.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, secret) = text.strip_prefix(SCHEME)?.strip_prefix('_')?.split_once('_')?;
        let is_hex = |part: &str, bytes: usize| {
            part.len() == 2 * bytes
                && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        (is_hex(prefix, PREFIX_BYTES) && is_hex(secret, SECRET_BYTES))
            .then(|| Self { prefix: prefix.to_owned(), sha256: Sha256::digest(text).into() })
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Of the whole key.
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }
}

impl NewApiKey {
    /// From random bytes that nobody else has.
    pub fn from_random(prefix: [u8; PREFIX_BYTES], secret: [u8; SECRET_BYTES]) -> Self {
        let text = format!("{SCHEME}_{}_{}", hex(&prefix), hex(&secret));
        let key = ApiKey::parse(&text).expect("invariant: it is spelled as keys are");
        Self { key, text }
    }

    /// For whoever is to use it, and nobody else.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NewApiKey").field(&self.key.prefix).finish()
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_read_back_and_its_secret_is_not_shown() {
        let new = NewApiKey::from_random([0xab; 8], [0x01; 32]);
        assert_eq!(new.reveal().len(), "obx_".len() + 16 + 1 + 64);
        assert_eq!(ApiKey::parse(new.reveal()), Some(new.key.clone()));
        assert_eq!(new.key.prefix(), "abababababababab");
        assert!(!format!("{new:?} {:?}", new.key).contains("0101"), "{new:?}");
    }

    #[test]
    fn what_is_spelled_otherwise_is_no_key() {
        let new = NewApiKey::from_random([0xab; 8], [0xcd; 32]);
        let good = new.reveal();
        for bad in [
            String::new(),
            "obx".into(),
            "obx__".into(),
            good.to_uppercase(),
            good.replace('c', "C"),
            good.replace("obx_", "OBX_"),
            good.replace('_', "-"),
            format!("{good}0"),
            format!(" {good}"),
            good[..good.len() - 1].to_owned(),
            good.replacen('a', "é", 1),
        ] {
            assert_eq!(ApiKey::parse(&bad), None, "{bad}");
        }
    }
}
