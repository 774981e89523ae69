//! The description is the committed one, and says what the API reads, writes and serves.

use std::collections::BTreeSet;

use domain::{AmountCents, Charge, ChargeId, ChargeStatus, Currency, Description, IdempotencyKey};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::api_error::Kind;
use crate::charge_query::{self, ChargeQuery};
use crate::routes::{self, Served};
use crate::settings::Settings;

#[test]
fn the_committed_document_is_the_one_that_is_made() {
    let made = format!("{:#}\n", document());
    if made != routes::description::DOCUMENT {
        let path = std::env::temp_dir().join("openapi.json");
        std::fs::write(&path, made).unwrap();
        panic!(
            "docs/openapi.json is not up to date. Look, and commit: cp {} docs/openapi.json",
            path.display()
        );
    }
}

#[test]
fn each_served_route_is_described_and_nothing_else() {
    let document = document();
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            described.insert((path.clone(), method.to_uppercase()));
        }
    }
    let mut served = BTreeSet::new();
    for route in Served::ALL {
        for method in route.allow.split(", ") {
            served.insert((route.path.to_owned(), method.to_owned()));
        }
    }
    assert_eq!(described, served);
}

#[test]
fn each_kind_of_problem_is_an_answer_of_some_operation() {
    let text = document()["paths"].to_string();
    // No operation can be asked for with a method that it is not there for.
    for kind in Kind::ALL.iter().filter(|kind| kind.name != "method-not-allowed") {
        assert!(text.contains(&format!("\"/problems/{}\"", kind.name)), "{}", kind.name);
    }
}

#[test]
fn the_examples_are_read_as_they_stand() {
    let required = [("DATABASE_URL", "postgres://localhost/x"), ("ONCEBOX_AUTH", "disabled")];
    let settings = settings::load::<Settings>(None, &required).unwrap();
    let body = schemas::new_charge_example().to_string();
    crate::charge_body::parse(body.as_bytes(), &settings.charges).unwrap();
    IdempotencyKey::parse(KEY_EXAMPLE.as_bytes()).unwrap();
    let page = charge_query::parse(&format!("cursor={CURSOR_EXAMPLE}")).unwrap();
    assert!(matches!(page, ChargeQuery::Page { limit: LIMIT_DEFAULT, .. }));
}

#[test]
fn the_schema_of_a_charge_has_the_members_that_are_written() {
    let mut charge = Charge {
        id: ChargeId(Uuid::nil()),
        amount_cents: AmountCents::new(1).unwrap(),
        currency: Currency::parse("BRL").unwrap(),
        description: Some(Description::parse("text").unwrap()),
        status: ChargeStatus::Succeeded,
        created_at: Timestamp::UNIX_EPOCH,
    };
    let schema = &schemas::all()["Charge"];
    let members =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(members(&serde_json::to_value(&charge).unwrap()), members(&schema["properties"]));
    assert_eq!(members(&schemas::charge_example()), members(&schema["properties"]));
    charge.description = None;
    let required = schema["required"].as_array().unwrap().iter();
    let required: BTreeSet<_> =
        required.map(|member| member.as_str().unwrap().to_owned()).collect();
    assert_eq!(members(&serde_json::to_value(&charge).unwrap()), required);
}
