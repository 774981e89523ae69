//! The schemas of what is read and written, and an example of each.

use domain::{AmountCents, ChargeStatus, Currency, Description};
use serde_json::{Value, json};

pub fn all() -> Value {
    json!({
        "NewCharge": new_charge(),
        "Charge": charge(),
        "Currency": { "description": "ISO 4217.", "type": "string", "enum": currencies() },
        "Charges": charges(),
        "Problem": problem(),
    })
}

pub fn new_charge_example() -> Value {
    json!({ "amountCents": 4900, "currency": "BRL", "description": "order 1042" })
}

pub fn charge_example() -> Value {
    json!({
        "id": "01a22e82-6ee7-7229-82e1-0e4ade74e714", "amountCents": 4900, "currency": "BRL",
        "description": "order 1042", "status": "succeeded", "createdAt": "2026-11-30T22:10:29.735371Z",
    })
}

fn new_charge() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["amountCents"],
        "properties": {
            "amountCents": { "type": "integer", "minimum": 1, "maximum": AmountCents::LIMIT,
                "description": "In the currency's minor unit, written without point or exponent; at most the operator's `charges.amount_max`." },
            "currency": { "anyOf": [{ "$ref": "#/components/schemas/Currency" }, { "type": "null" }],
                "description": "ISO 4217; absent or null: the operator's `charges.default_currency`." },
            "description": { "type": ["string", "null"], "maxLength": Description::MAX_CHARACTERS,
                "description": "Free text without U+0000 and without a card number." },
        },
    })
}

/// Every code that is read. There is no other list of them to keep in step.
fn currencies() -> Vec<Currency> {
    let letters = || b'A'..=b'Z';
    let codes =
        letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b, c])));
    codes.filter_map(|code| Currency::parse(std::str::from_utf8(&code).ok()?)).collect()
}

fn charge() -> Value {
    let statuses = [ChargeStatus::Pending, ChargeStatus::Succeeded, ChargeStatus::Declined];
    json!({
        "type": "object",
        "required": ["id", "amountCents", "currency", "status", "createdAt"],
        "properties": {
            "id": { "type": "string", "format": "uuid" },
            "amountCents": { "type": "integer", "minimum": 1, "maximum": AmountCents::LIMIT },
            "currency": { "$ref": "#/components/schemas/Currency" },
            "description": { "type": "string", "maxLength": Description::MAX_CHARACTERS },
            "status": { "enum": statuses },
            "createdAt": { "type": "string", "format": "date-time" },
        },
    })
}

fn charges() -> Value {
    json!({
        "type": "object", "required": ["charges"],
        "properties": {
            "charges": { "type": "array", "items": { "$ref": "#/components/schemas/Charge" } },
            "next": { "type": "string", "format": "uri-reference",
                "description": "Where the next page is; absent after the last." },
        },
    })
}

fn problem() -> Value {
    json!({
        "type": "object", "description": "RFC 9457.",
        "required": ["type", "title", "status", "retryable"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference", "description": "A page that explains it." },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "retryable": { "type": "boolean",
                "description": "Whether the very same request may get another answer later." },
            "charge": { "type": "string", "format": "uri-reference",
                "description": "The charge that an expired key stands for." },
            "parameter": { "type": "string", "description": "The query parameter that is wrong." },
            "errors": { "type": "array", "description": "What is wrong with the body.",
                "items": { "type": "object", "required": ["pointer", "detail"], "properties": {
                    "pointer": { "type": "string", "format": "json-pointer" },
                    "detail": { "type": "string" },
                }},
            },
        },
    })
}
