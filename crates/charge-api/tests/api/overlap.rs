//! Requests with one key at the same time. The first is held in the middle of its statement.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::{TestApp, within};
use crate::contracts;
use crate::hold::{HELD, HELD_OTHER, Hold, PATIENT};
use crate::request::{charge, charge_as, get};

const BODY: &str = r#"{"amountCents":4900}"#;

/// Beside the held charge, everything else has to do with few connections.
const ONE_CONNECTION: &[(&str, &str)] = &[
    ("ONCEBOX_DATABASE_POOL_MAX", "1"),
    ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
    ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"),
    ("ONCEBOX_HTTP_DEADLINE", "5m"),
];
const TWO_CONNECTIONS: &[(&str, &str)] = &[
    ("ONCEBOX_DATABASE_POOL_MAX", "2"),
    ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
    ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"),
    ("ONCEBOX_HTTP_DEADLINE", "5m"),
];

contracts! {
    async fn ten_at_once_are_one_charge(app: &TestApp) {
        let key = Uuid::new_v4();
        let mut connections = Vec::new();
        for _ in 0..10 {
            connections.push(app.connect().await);
        }
        let bytes = charge_as(key, BODY).bytes();
        for connection in &mut connections {
            connection.send(&bytes).await;
        }
        let (mut created, mut replayed) = (Vec::new(), Vec::new());
        for connection in &mut connections {
            let answer = connection.response().await;
            match (answer.status, answer.header("idempotent-replayed")) {
                (201, Some("false")) => created.push(answer),
                (201, _) => replayed.push(answer),
                _ => drop(answer.assert_problem(409, "request-in-progress")),
            }
        }
        assert_eq!(created.len(), 1);
        for replay in &replayed {
            replay.assert_replay_of(&created[0]);
        }
        assert_eq!(app.rows().await, [1, 1, 1]);
        let (replayed, in_flight) = (app.outcomes("replayed"), app.outcomes("in_flight"));
        assert_eq!((app.outcomes("created"), replayed + in_flight), (1.0, 9.0));
    }

    with PATIENT;
    async fn while_the_first_runs_the_same_is_409_and_another_payload_422(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut first = app.connect().await;
        first.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;

        for _ in 0..3 {
            let second = app.send(&charge_as(key, HELD)).await;
            let problem = second.assert_problem(409, "request-in-progress");
            assert_eq!((&problem["retryable"], second.header("retry-after")), (&true.into(), Some("1")));
            assert_eq!(second.header("preference-applied"), None);
        }
        let other = app.send(&charge_as(key, BODY)).await;
        let problem = other.assert_problem(422, "idempotency-key-reused");
        assert_eq!(problem["detail"], "these members differ: amountCents");
        let other = app.send(&charge_as(key, HELD_OTHER)).await;
        other.assert_problem(422, "idempotency-key-reused");
        assert_eq!(app.rows().await, [0, 0, 0]);

        hold.release().await;
        let first = first.response().await;
        first.assert_created();
        app.send(&charge_as(key, HELD)).await.assert_replay_of(&first);
        assert_eq!(app.rows().await, [1, 1, 1]);
        assert_eq!((app.outcomes("in_flight"), app.outcomes("payload_conflict")), (3.0, 2.0));
    }

    with ONE_CONNECTION;
    async fn with_a_pool_of_one_a_key_in_flight_stops_no_other(app: &TestApp) {
        others_go_on(app).await;
    }

    with TWO_CONNECTIONS;
    async fn with_a_pool_of_two_a_key_in_flight_stops_no_other(app: &TestApp) {
        others_go_on(app).await;
    }

    with PATIENT;
    async fn a_422_while_the_first_runs_is_not_undone_by_its_failure(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        app.send(&charge_as(key, BODY)).await.assert_created();
        // The first in flight is the one with the wrong payload: the key was completed long ago.
        let mut wrong = app.connect().await;
        wrong.send(&charge_as(key, HELD).bytes()).await;
        app.send(&charge_as(key, BODY)).await.header("idempotent-replayed").expect("a replay");
        wrong.response().await.assert_problem(422, "idempotency-key-reused");
        hold.release().await;
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    async fn fifty_payloads_under_one_key_are_one_charge(app: &TestApp) {
        let key = Uuid::new_v4();
        let mut connections = Vec::new();
        for cents in 1..=50 {
            let mut connection = app.connect().await;
            let body = format!("{{\"amountCents\":{cents}}}");
            connection.send(&charge_as(key, &body).bytes()).await;
            connections.push(connection);
        }
        let mut created = 0;
        for connection in &mut connections {
            let answer = connection.response().await;
            match answer.status {
                201 => created += 1,
                _ => drop(answer.assert_problem(422, "idempotency-key-reused")),
            }
        }
        assert_eq!((created, app.rows().await), (1, [1, 1, 1]));
    }
}

/// Ten retries of a key in flight, in this process and in another, and a hundred charges and reads
/// beside them.
async fn others_go_on(app: &TestApp) {
    let elsewhere = TestApp::on(Arc::clone(&app.database), ONE_CONNECTION).await;
    let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
    let mut first = elsewhere.connect().await;
    first.send(&charge_as(key, HELD).bytes()).await;
    hold.reached().await;
    others_go_on_beside(app, key).await;
    others_go_on_beside(&elsewhere, key).await;
    hold.release().await;
    within("the first is answered", first.response()).await.assert_created();
    assert_eq!(app.rows().await, [201, 201, 201]);
    elsewhere.stop().await;
}

async fn others_go_on_beside(app: &TestApp, key: Uuid) {
    let mut retries = Vec::new();
    for _ in 0..10 {
        let mut retry = app.connect().await;
        retry.send(&charge_as(key, HELD).bytes()).await;
        retries.push(retry);
    }
    let mut other = app.connect().await;
    for _ in 0..100 {
        other.send(&charge(BODY).bytes()).await;
        let created = other.response().await;
        let location = created.assert_created().header("location").unwrap();
        other.send(&get(location).bytes()).await;
        assert_eq!(other.response().await.status, 200);
    }
    for retry in &mut retries {
        retry.response().await.assert_problem(409, "request-in-progress");
    }
    let conflict = app.send(&charge_as(key, HELD_OTHER)).await;
    conflict.assert_problem(422, "idempotency-key-reused");
}
