//! `Prefer: wait=N`: a second request that would rather have the answer than a 409.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::TestApp;
use crate::contracts;
use crate::hold::{HELD, HELD_OTHER, Hold, PATIENT};
use crate::request::{charge, charge_as, get};

const BODY: &str = r#"{"amountCents":4900}"#;

/// One connection beside the held charge: who waits must not have it.
const FEW_CONNECTIONS: &[(&str, &str)] = &[
    ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "60s"),
    ("ONCEBOX_DATABASE_POOL_MAX", "1"),
    ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
    ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"),
    ("ONCEBOX_HTTP_DEADLINE", "5m"),
];

contracts! {
    with FEW_CONNECTIONS;
    async fn who_waits_gets_the_answer_of_the_first_and_holds_up_nobody(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut first = app.connect().await;
        first.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let mut second = app.connect().await;
            second.send(&charge_as(key, HELD).with("Prefer", "wait=60").bytes()).await;
            waiting.push(second);
        }
        for _ in 0..20 {
            let created = app.send(&charge(BODY)).await;
            let location = created.assert_created().header("location").unwrap();
            assert_eq!(app.send(&get(location)).await.status, 200);
        }
        // Nobody waits for an answer that is another's.
        let other = charge_as(key, HELD_OTHER).with("Prefer", "wait=60");
        app.send(&other).await.assert_problem(422, "idempotency-key-reused");
        assert_eq!(app.outcomes("in_flight") + app.outcomes("replayed"), 0.0);
        hold.release().await;
        let first = first.response().await;
        first.assert_created();
        for second in &mut waiting {
            let second = second.response().await;
            second.assert_replay_of(&first);
            assert_eq!(second.header("preference-applied"), Some("wait=60"));
        }
    }

    with FEW_CONNECTIONS;
    async fn who_waits_for_another_process_gets_its_answer(app: &TestApp) {
        let other = TestApp::on(Arc::clone(&app.database), FEW_CONNECTIONS).await;
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut first = app.connect().await;
        first.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        let mut waiting = other.connect().await;
        waiting.send(&charge_as(key, HELD).with("Prefer", "wait=60").bytes()).await;
        for _ in 0..20 {
            other.send(&charge(BODY)).await.assert_created();
        }
        other.send(&charge_as(key, HELD)).await.assert_problem(409, "request-in-progress");
        hold.release().await;
        let first = first.response().await;
        first.assert_created();
        waiting.response().await.assert_replay_of(&first);
        other.stop().await;
    }

    with PATIENT;
    async fn a_wait_that_is_over_is_409(app: &TestApp) {
        let other = TestApp::on(Arc::clone(&app.database), PATIENT).await;
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut first = app.connect().await;
        first.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        for process in [app, &other] {
            let waited = process.send(&charge_as(key, HELD).with("Prefer", "wait=1")).await;
            waited.assert_problem(409, "request-in-progress");
            assert_eq!(waited.header("preference-applied"), Some("wait=1"));
            assert_eq!(waited.header("retry-after"), Some("1"));
        }
        hold.release().await;
        first.response().await.assert_created();
        other.stop().await;
    }

    with &[("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "2s")];
    async fn the_wait_is_capped_and_said_so(app: &TestApp) {
        let key = Uuid::new_v4();
        for (preference, applied) in [
            ("wait=1", Some("wait=1")), ("wait=600", Some("wait=2")),
            ("respond-async, WAIT=\"99999999999999999999\"; a=b", Some("wait=2")),
            ("wait=0", None), ("wait=-1", None), ("wait=canary", None), ("return=minimal", None), ("", None),
        ] {
            let answer = app.send(&charge_as(key, BODY).with("Prefer", preference)).await;
            assert_eq!(answer.status, 201);
            assert_eq!(answer.header("preference-applied"), applied, "{preference}");
        }
    }
}
