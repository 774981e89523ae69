//! The W3C trace context of a request, kept with the event so that its consumer can link to it.

use actix_web::http::header::HeaderMap;
use serde_json::{Map, Value};

/// A `tracestate` may be longer; vendors must accept one cut to this (Trace Context §3.3.1.5).
const TRACESTATE_MAX: usize = 512;

/// `traceparent`, and `tracestate` when there is one; empty when the first is not well formed.
pub fn of(headers: &HeaderMap) -> Value {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let mut context = Map::new();
    if let Some(parent) = text("traceparent").filter(|parent| is_traceparent(parent)) {
        context.insert("traceparent".into(), parent.into());
        if let Some(state) = text("tracestate").filter(|state| state.len() <= TRACESTATE_MAX) {
            context.insert("tracestate".into(), state.into());
        }
    }
    Value::Object(context)
}

/// Version 00: `00-<32 hex>-<16 hex>-<2 hex>`, lower case, neither id all zeros.
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, length| is_hex(part, length) && part.bytes().any(|b| b != b'0');
    match text.split('-').collect::<Vec<_>>()[..] {
        ["00", trace, parent, flags] => is_id(trace, 32) && is_id(parent, 16) && is_hex(flags, 2),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_traceparent;

    #[test]
    fn only_a_well_formed_traceparent_travels() {
        assert!(is_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for malformed in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(!is_traceparent(malformed), "{malformed:?}");
        }
    }
}
