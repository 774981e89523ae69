//! The description of the API, OpenAPI 3.1: made of the tables and limits that the API itself works by.
//!
//! It is part of the tests alone. What it makes is committed as `docs/openapi.json`, and that file is
//! compiled in and served: the binary carries no generator. Requests are read by hand, strictly, so
//! there are no types of requests to derive a schema from; tests hold the schemas to what is read and
//! written instead.

mod checks;
mod responses;
mod schemas;

use serde_json::{Value, json};

use crate::charge_query::{LIMIT_DEFAULT, LIMIT_MAX};
use responses::{answers, headers};

const ABOUT: &str = "\
One key per purchase, and the same key and body on every retry: then a purchase is charged once, \
whatever gets lost on the way.

A key is kept for 24 hours after its charge, unless the operator set another `idempotency.retention` \
(or `never`). After that it is new again and would charge once more, or, with \
`idempotency.after_expiry = tombstone`, is answered 409 `idempotency-key-expired` for ever.

Every error is `application/problem+json` (RFC 9457). Act on `type` and `retryable`; `/problems` lists \
every type. No error repeats what was sent.";

/// What any request may meet. 503 of a charge: it may have been written, and a retry tells.
const ANYWHERE: [&str; 6] = [
    "malformed-request",
    "head-timeout",
    "target-too-long",
    "head-too-large",
    "unavailable",
    "internal",
];

/// What a request may meet that needs an API key.
const WITH_KEY: [&str; 2] = ["unauthenticated", "too-many-requests"];

pub fn document() -> Value {
    json!({
        "openapi": "3.1.1",
        "info": { "title": "Oncebox charge API", "version": "1", "description": ABOUT },
        "security": [{ "apiKey": [] }],
        "paths": {
            "/charges": with_head(json!({ "get": list(), "post": create() })),
            "/charges/{id}": with_head(json!({ "get": show() })),
            "/openapi.json": with_head(json!({ "get": description() })),
            "/problems": with_head(json!({ "get": problems() })),
            "/problems/{name}": with_head(json!({ "get": problem() })),
        },
        "components": {
            "securitySchemes": { "apiKey": {
                "type": "http", "scheme": "bearer", "bearerFormat": "obx_<prefix>_<secret>",
                "description": "An API key of the tenant. None is asked for where `auth` is disabled.",
            }},
            "schemas": schemas::all(),
        },
    })
}

fn create() -> Value {
    let problems = [
        "forbidden",
        "too-many-keys",
        "idempotency-key-missing",
        "idempotency-key-invalid",
        "idempotency-key-reused",
        "idempotency-key-expired",
        "request-in-progress",
        "invalid-body",
        "unsupported-media-type",
        "body-too-large",
        "body-incomplete",
        "body-timeout",
    ];
    let charged = json!({
        "description": "Charged: now, or before under this key. A replay has the bytes of the first answer.",
        "headers": headers(&["Location", "Idempotency-Key", "Idempotent-Replayed", "Preference-Applied"]),
        "content": { "application/json": {
            "schema": { "$ref": "#/components/schemas/Charge" }, "example": schemas::charge_example(),
        }},
    });
    json!({
        "operationId": "createCharge",
        "summary": "Charge once per key",
        "parameters": [
            { "name": "Idempotency-Key", "in": "header", "required": true,
              "description": "A random UUID for each purchase, bare or in double quotes; kept for 24 hours unless the operator set another retention.",
              "schema": { "type": "string", "pattern": KEY_PATTERN }, "example": KEY_EXAMPLE },
            { "name": "Prefer", "in": "header",
              "description": "`wait=5` (RFC 7240): wait so many seconds for the first request with this key, up to `idempotency.wait_max`, in place of an immediate 409.",
              "schema": { "type": "string", "pattern": "^wait=[0-9]{1,3}$" } },
        ],
        "requestBody": { "required": true, "content": { "application/json": {
            "schema": { "$ref": "#/components/schemas/NewCharge" }, "example": schemas::new_charge_example(),
        }}},
        "responses": answers("201", charged, &[&problems, &WITH_KEY, &ANYWHERE]),
    })
}

fn list() -> Value {
    let page = json!({
        "description": "A page of the tenant's charges, the newest first; or the charge of a key, when there is one.",
        "headers": headers(&["Link"]),
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Charges" } } },
    });
    let problems = ["invalid-parameter", "request-in-progress"];
    json!({
        "operationId": "listCharges",
        "summary": "List charges, or tell whether a key was charged",
        "description": "By key: one charge, no charge when nothing is committed under the key (a request on its way may yet charge), or 409 while a request with it is being written.",
        "parameters": [
            { "name": "idempotencyKey", "in": "query",
              "description": "Stands alone: the charge of this key. Found as long as the key is there, expired or not.",
              "schema": { "type": "string", "pattern": KEY_PATTERN }, "example": KEY_EXAMPLE },
            { "name": "limit", "in": "query", "description": "Charges of a page.",
              "schema": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT } },
            { "name": "cursor", "in": "query", "description": "Where to go on: taken from `next` as it is.",
              "schema": { "type": "string" }, "example": CURSOR_EXAMPLE },
        ],
        "responses": answers("200", page, &[&problems, &WITH_KEY, &ANYWHERE]),
    })
}

fn show() -> Value {
    let charge = json!({
        "description": "The charge.",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Charge" } } },
    });
    json!({
        "operationId": "showCharge",
        "summary": "One charge",
        "parameters": [{ "name": "id", "in": "path", "required": true,
            "schema": { "type": "string", "format": "uuid" } }],
        "responses": answers("200", charge, &[&["not-found"], &WITH_KEY, &ANYWHERE]),
    })
}

fn description() -> Value {
    let document = json!({
        "description": "OpenAPI 3.1.",
        "content": { "application/json": { "schema": { "type": "object" } } },
    });
    json!({
        "operationId": "showDescription",
        "summary": "This document",
        "security": [],
        "responses": answers("200", document, &[&ANYWHERE]),
    })
}

fn problems() -> Value {
    json!({
        "operationId": "listProblems",
        "summary": "Every type of problem",
        "security": [],
        "responses": answers("200", text("A line each."), &[&ANYWHERE]),
    })
}

fn problem() -> Value {
    json!({
        "operationId": "showProblem",
        "summary": "What a problem's type means, and what to do about it",
        "security": [],
        "parameters": [{ "name": "name", "in": "path", "required": true,
            "schema": { "type": "string", "enum": responses::kind_names() } }],
        "responses": answers("200", text("A short page."), &[&["not-found"], &ANYWHERE]),
    })
}

fn text(what: &str) -> Value {
    json!({ "description": what, "content": { "text/plain": { "schema": { "type": "string" } } } })
}

/// HEAD is answered wherever GET is: the same, without the content.
fn with_head(mut path: Value) -> Value {
    let mut head = path["get"].clone();
    head["operationId"] = json!(format!("{}Head", head["operationId"].as_str().unwrap()));
    for response in head["responses"].as_object_mut().unwrap().values_mut() {
        response.as_object_mut().unwrap().remove("content");
    }
    path["head"] = head;
    path
}

const KEY_EXAMPLE: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
/// The nil and the max UUID are no keys.
const KEY_PATTERN: &str = "^(?!\"?(0[0-]*|[Ff][Ff-]*)\"?$)(\"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\"|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$";
const CURSOR_EXAMPLE: &str = "AQGiLoJu53IpguEOSt505xQ";
