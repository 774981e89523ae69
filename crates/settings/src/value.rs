//! How a setting's text becomes a value. Durations and sizes always carry their unit, so that no
//! one has to guess it; an empty text is never a value (leave a setting out to have its default).

use std::{net::SocketAddr, num::IntErrorKind, path::PathBuf, time::Duration};

/// A type that a setting can have. The error says why the text is not one, without repeating it.
pub trait FromSetting: Sized {
    /// Neither the text nor the reason it was refused may be shown.
    const SECRET: bool = false;
    /// The file may give an array instead of a comma-separated text.
    const LIST: bool = false;

    fn from_setting(text: &str) -> Result<Self, String>;
}

impl FromSetting for Duration {
    /// An integer and one unit: `250ms`, `5s`, `10m`, `24h`, `7d`.
    fn from_setting(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text, "ms, s, m, h or d")?;
        let millis_per_unit: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            _ => return Err("has a unit other than ms, s, m, h or d".into()),
        };
        number
            .checked_mul(millis_per_unit)
            .map(Self::from_millis)
            .ok_or_else(|| "is too long".into())
    }
}

/// How long something is kept; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention(pub Option<Duration>);

impl FromSetting for Retention {
    /// A duration, or `never`.
    fn from_setting(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self(None)),
            _ => match Duration::from_setting(text)? {
                Duration::ZERO => Err("keeps nothing at all".into()),
                duration => Ok(Self(Some(duration))),
            },
        }
    }
}

/// A number of bytes: `512B`, `16KiB`, `4MiB`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// For limits of buffers; a size that memory cannot hold is no limit.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromSetting for ByteSize {
    fn from_setting(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text, "B, KiB, MiB or GiB")?;
        let bytes_per_unit: u64 = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err("has a unit other than B, KiB, MiB or GiB".into()),
        };
        number.checked_mul(bytes_per_unit).map(Self).ok_or_else(|| "is too large".into())
    }
}

fn number_and_unit<'a>(text: &'a str, units: &str) -> Result<(u64, &'a str), String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if text.is_empty() {
        Err("is empty".into())
    } else if text.starts_with('-') {
        Err("is negative".into())
    } else if number.is_empty() {
        Err("does not start with a number".into())
    } else if unit.is_empty() {
        Err(format!("has no unit ({units})"))
    } else {
        number.parse().map(|number| (number, unit)).map_err(|_| "is too large".into())
    }
}

impl FromSetting for String {
    fn from_setting(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".into()) } else { Ok(text.to_owned()) }
    }
}

impl FromSetting for PathBuf {
    fn from_setting(text: &str) -> Result<Self, String> {
        String::from_setting(text).map(Self::from)
    }
}

/// Comma separated; blanks around an element do not count, and an empty text is an empty list.
impl FromSetting for Vec<String> {
    const LIST: bool = true;

    fn from_setting(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::new());
        }
        text.split(',')
            .map(|element| match element.trim() {
                "" => Err("has an empty element".to_owned()),
                element => Ok(element.to_owned()),
            })
            .collect()
    }
}

impl FromSetting for bool {
    fn from_setting(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("is neither true nor false".into()),
        }
    }
}

impl FromSetting for SocketAddr {
    fn from_setting(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "is not an IP address and port".into())
    }
}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        impl FromSetting for $integer {
            fn from_setting(text: &str) -> Result<Self, String> {
                text.parse::<$integer>().map_err(|error| match error.kind() {
                    IntErrorKind::Empty => "is empty".into(),
                    IntErrorKind::PosOverflow => "is too large".into(),
                    IntErrorKind::NegOverflow => "is too small".into(),
                    _ => "is not such an integer".into(),
                })
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, usize, i16, i32, i64);

impl FromSetting for f64 {
    fn from_setting(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err("is not a finite number".into()),
        }
    }
}
