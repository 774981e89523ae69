//! What a row must keep to, whoever wrote it: the contract of `docs/OUTBOX.md`. The schema refuses
//! most of what breaks it when it is written; here the rows are found that were there before its
//! constraints. How large a payload may be is the topic's business, not this file's.

use std::collections::BTreeMap;

use store::outbox::relay::OutboxRecord;

const TENANT_ID_BYTES_MAX: usize = 255;
/// A key is compared and hashed all along the way; ids are tens of bytes.
const AGGREGATE_ID_BYTES_MAX: usize = 1024;
const EVENT_TYPE_BYTES_MAX: usize = 255;
/// Of all headers, as JSON.
const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// # Errors
/// Why the row can never be sent as it is. Nothing of the row is quoted.
pub fn check(record: &OutboxRecord) -> Result<(), String> {
    let named = [
        ("tenant_id", &record.tenant_id, TENANT_ID_BYTES_MAX),
        ("aggregate_id", &record.aggregate_id, AGGREGATE_ID_BYTES_MAX),
        ("event_type", &record.event_type, EVENT_TYPE_BYTES_MAX),
    ];
    for (column, value, bytes_max) in named {
        if value.is_empty() {
            return Err(format!("{column} is empty"));
        }
        at_most(column, value.len(), bytes_max)?;
    }
    match record.aggregate_version {
        Some(..0) => Err("aggregate_version is negative".into()),
        None | Some(0..) => Ok(()),
    }
}

/// The row's own headers.
///
/// # Errors
/// As [`check`].
pub fn headers(record: &OutboxRecord) -> Result<BTreeMap<String, String>, String> {
    let Some(json) = &record.headers else { return Ok(BTreeMap::new()) };
    at_most("headers", json.len(), HEADERS_BYTES_MAX)?;
    let headers: BTreeMap<String, String> =
        serde_json::from_str(json).map_err(|_| "headers is not an object of texts".to_owned())?;
    let letters = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    let is_name = |name: &String| !name.is_empty() && name.chars().all(letters);
    match headers.keys().all(is_name) {
        true => Ok(headers),
        false => Err("headers has a name that is not of letters, digits, dots, underscores and \
                      hyphens"
            .into()),
    }
}

fn at_most(column: &str, bytes: usize, bytes_max: usize) -> Result<(), String> {
    match bytes <= bytes_max {
        true => Ok(()),
        false => Err(format!("{column} has {bytes} bytes, more than {bytes_max}")),
    }
}
