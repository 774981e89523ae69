use settings::{FromSetting, Problems};
use store::outbox::relay::{EventTypes, Selection};

use super::{Route, TopicsByType, valid_topic};
use crate::settings::Settings;

fn load(env: &[(&str, &str)]) -> Result<Settings, Problems> {
    let mut all =
        vec![("DATABASE_URL", "postgres://localhost/x"), ("KAFKA_BROKERS", "localhost:9092")];
    all.extend(env);
    settings::load(None, &all)
}

fn routes(env: &[(&str, &str)]) -> Vec<Route> {
    Route::all(&load(env).unwrap())
}

fn route(topic: &str, event_types: EventTypes, behind_parked: bool) -> Route {
    Route { topic: topic.into(), selection: Selection { event_types, behind_parked } }
}

fn types(types: &[&str]) -> Vec<String> {
    types.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn without_routes_one_topic_gets_everything() {
    assert_eq!(routes(&[]), [route("charges.events", EventTypes::AllBut(vec![]), false)]);
}

#[test]
fn every_event_type_is_in_exactly_one_route() {
    let env = [
        (
            "ONCEBOX_KAFKA_ROUTES",
            "Refunded=refunds, Disputed=refunds, a=b=mails, Captured=charges.events",
        ),
        ("ONCEBOX_KAFKA_PASS_PARKED", "mails"),
    ];
    assert_eq!(
        routes(&env),
        [
            route(
                "charges.events",
                EventTypes::AllBut(types(&["Disputed", "Refunded", "a=b"])),
                false
            ),
            route("mails", EventTypes::Only(types(&["a=b"])), true),
            route("refunds", EventTypes::Only(types(&["Disputed", "Refunded"])), false),
        ]
    );
}

#[test]
fn without_an_order_nothing_waits_behind_a_parked_row() {
    let env = [("ONCEBOX_RELAY_ORDERING", "none"), ("ONCEBOX_KAFKA_ROUTES", "Refunded=refunds")];
    assert!(routes(&env).iter().all(|route| route.selection.behind_parked));
}

#[test]
fn a_wrong_route_is_refused_with_its_place() {
    for (text, why) in [
        ("a=b,c", "has no TYPE=TOPIC at place 2"),
        ("=b", "has no TYPE=TOPIC at place 1"),
        ("a=", "has no topic's name at place 1"),
        ("a=b c", "has no topic's name at place 1"),
        ("a=b,c=..", "has no topic's name at place 2"),
        ("a=b,a=c", "has the type of place 2 twice"),
        ("a=b,,c=d", "has an empty element"),
    ] {
        assert_eq!(TopicsByType::from_setting(text), Err(why.to_owned()), "{text}");
    }
    assert_eq!(TopicsByType::from_setting(" "), Ok(TopicsByType::default()));
}

#[test]
fn topics_are_named_by_kafkas_rule() {
    for good in ["a", "A.b_c-1", &"x".repeat(249)] {
        assert_eq!(valid_topic(&good.to_owned()), Ok(()), "{good}");
    }
    for bad in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
        assert!(valid_topic(&bad.to_owned()).is_err(), "{bad}");
    }
}

#[test]
fn a_policy_for_an_unknown_topic_is_refused() {
    let env = [("ONCEBOX_KAFKA_ROUTES", "a=mails"), ("ONCEBOX_KAFKA_PASS_PARKED", "mails,mail")];
    let problems = load(&env).unwrap_err().to_string();
    assert!(problems.contains("kafka.pass_parked"), "{problems}");
}

#[test]
fn each_topic_needs_two_connections() {
    let env = [("ONCEBOX_KAFKA_ROUTES", "a=b,c=d,e=b"), ("ONCEBOX_DATABASE_POOL_MAX", "7")];
    let problems = load(&env).unwrap_err().to_string();
    assert!(problems.contains("must be at least 8"), "{problems}");
}
