//! The `Prefer: wait=N` header (RFC 7240 §4.3): how long a client would rather wait for the first
//! request's answer than be told that it is still running.

use std::time::Duration;

use actix_web::http::header::HeaderMap;

pub const PREFER: &str = "prefer";
pub const PREFERENCE_APPLIED: &str = "preference-applied";

/// A preference that is honoured, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    seconds: u64,
}

impl Wait {
    /// `None` when there is no preference, or none to wait. One that cannot be read counts as none:
    /// a preference is never a reason to refuse a request (RFC 7240 §2).
    pub fn of(headers: &HeaderMap, max: Duration) -> Option<Self> {
        let lines = headers.get_all(PREFER).filter_map(|line| line.to_str().ok());
        // The first of several counts.
        let wanted = lines.flat_map(|line| line.split(',')).find_map(wait)?;
        let seconds = wanted.unwrap_or(0).min(max.as_secs());
        (seconds > 0).then_some(Self { seconds })
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// The value of `Preference-Applied`.
    pub fn applied(self) -> String {
        format!("wait={}", self.seconds)
    }
}

/// `Some` for a `wait` preference, whatever its value is.
fn wait(preference: &str) -> Option<Option<u64>> {
    let preference = preference.split(';').next().unwrap_or_default();
    let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
    if !name.trim().eq_ignore_ascii_case("wait") {
        return None;
    }
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    Some(digits.then(|| value.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    fn applied(lines: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            let value = HeaderValue::from_str(line).expect("a header value");
            headers.append(HeaderName::from_static(PREFER), value);
        }
        Wait::of(&headers, Duration::from_secs(5)).map(Wait::applied)
    }

    #[test]
    fn a_wait_is_found_among_other_preferences_and_capped() {
        for lines in [
            &["wait=3"][..],
            &["WAIT = 3"],
            &["respond-async, wait=\"3\""],
            &["return=minimal; foo", "wait=3; bar=1, wait=4"],
        ] {
            assert_eq!(applied(lines).as_deref(), Some("wait=3"), "{lines:?}");
        }
        assert_eq!(applied(&["wait=600"]).as_deref(), Some("wait=5"));
        assert_eq!(applied(&["wait=99999999999999999999999"]).as_deref(), Some("wait=5"));
    }

    #[test]
    fn what_is_no_number_of_seconds_is_no_preference() {
        for line in ["", "wait", "wait=", "wait=0", "wait=-1", "wait=1.5", "wait=\"3", "awaits=3"] {
            assert_eq!(applied(&[line]), None, "{line:?}");
        }
    }
}
