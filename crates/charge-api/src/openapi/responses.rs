//! Answers: the good one of an operation, and its problems from the table of their kinds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api_error::Kind;

pub fn kind_names() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name).collect()
}

/// The good answer, and a response for each status that these kinds of problem have.
pub fn answers(status: &str, good: Value, problems: &[&[&str]]) -> Value {
    let mut by_status: BTreeMap<u16, Vec<&Kind>> = BTreeMap::new();
    for name in problems.iter().copied().flatten() {
        let kind = Kind::ALL.iter().find(|kind| kind.name == *name);
        let kind = kind.unwrap_or_else(|| panic!("{name} is no kind of problem"));
        by_status.entry(kind.status.as_u16()).or_default().push(kind);
    }
    let mut answers = Map::from_iter([(status.to_owned(), good)]);
    answers.extend(by_status.iter().map(|(status, kinds)| (status.to_string(), refusal(kinds))));
    Value::Object(answers)
}

fn refusal(kinds: &[&Kind]) -> Value {
    let lines =
        kinds.iter().map(|kind| format!("- `{}`: {}. {}", kind.name, kind.title, kind.advice));
    let types = kinds.iter().map(|kind| format!("/problems/{}", kind.name)).collect::<Vec<_>>();
    let named = |part: &str| kinds.iter().any(|kind| kind.name.contains(part));
    let sent = [
        ("Retry-After", named("in-progress") || named("too-many") || named("unavailable")),
        ("Preference-Applied", named("in-progress")),
        ("Link", named("idempotency-key-") && !named("reused")),
        ("WWW-Authenticate", named("unauthenticated")),
    ];
    let sent = sent.iter().filter_map(|(name, is_sent)| is_sent.then_some(*name));
    json!({
        "description": lines.collect::<Vec<_>>().join("\n"),
        "headers": headers(&sent.collect::<Vec<_>>()),
        "content": { "application/problem+json": { "schema": {
            "$ref": "#/components/schemas/Problem",
            "properties": { "type": { "enum": types } },
        }}},
    })
}

pub fn headers(names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), header(name))).collect::<Map<_, _>>().into()
}

fn header(name: &str) -> Value {
    let (schema, description) = match name {
        "Location" => (json!({ "type": "string" }), "The address of the charge."),
        "Idempotency-Key" => {
            (json!({ "type": "string", "format": "uuid" }), "The key, as it is kept.")
        }
        "Idempotent-Replayed" => (
            json!({ "enum": ["true", "false"] }),
            "Whether this is the answer of an earlier request.",
        ),
        "Preference-Applied" => {
            (json!({ "type": "string" }), "`wait=N` when `Prefer` was honoured (RFC 7240).")
        }
        "Retry-After" => {
            (json!({ "type": "integer", "minimum": 1 }), "Seconds to wait before the same again.")
        }
        "Link" => (
            json!({ "type": "string" }),
            "`next`: the page after this one. `describedby`: the page of the problem. `related`: the charge of an expired key (RFC 8288).",
        ),
        "WWW-Authenticate" => (json!({ "type": "string" }), "RFC 6750."),
        _ => panic!("{name} is no header of ours"),
    };
    json!({ "description": description, "schema": schema })
}
