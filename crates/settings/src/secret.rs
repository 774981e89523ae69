//! A value that never shows itself: `Debug` and `Display` print `***`.

use std::fmt;

use crate::FromSetting;

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself. Keep what this returns out of logs, errors and metrics.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl FromSetting for Secret {
    const SECRET: bool = true;

    fn from_setting(text: &str) -> Result<Self, String> {
        String::from_setting(text).map(Self)
    }
}
