//! Two processes on one database: what the one does not know of the other, the database tells.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::TestApp;
use crate::contracts;
use crate::hold::{HELD, HELD_OTHER, Hold, PATIENT};
use crate::request::charge_as;

const BODY: &str = r#"{"amountCents":4900}"#;

contracts! {
    async fn what_one_process_charged_another_replays(app: &TestApp) {
        let other = TestApp::on(Arc::clone(&app.database), &[]).await;
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        first.assert_created();
        other.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
        let conflict = other.send(&charge_as(key, HELD)).await;
        let problem = conflict.assert_problem(422, "idempotency-key-reused");
        assert_eq!(problem["detail"], "these members differ: amountCents");
        assert_eq!(app.rows().await, [1, 1, 1]);
        other.stop().await;
    }

    with PATIENT;
    async fn while_one_process_runs_a_key_another_answers_409_and_422_at_once(app: &TestApp) {
        let other = TestApp::on(Arc::clone(&app.database), PATIENT).await;
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        let mut first = app.connect().await;
        first.send(&charge_as(key, HELD).bytes()).await;
        hold.reached().await;
        for _ in 0..3 {
            let second = other.send(&charge_as(key, HELD)).await;
            second.assert_problem(409, "request-in-progress");
            assert_eq!(second.header("retry-after"), Some("1"));
            let conflict = other.send(&charge_as(key, HELD_OTHER)).await;
            conflict.assert_problem(422, "idempotency-key-reused");
        }
        other.send(&charge_as(Uuid::new_v4(), BODY)).await.assert_created();
        hold.release().await;
        let first = first.response().await;
        first.assert_created();
        other.send(&charge_as(key, HELD)).await.assert_replay_of(&first);
        assert_eq!(app.rows().await, [2, 2, 2]);
        other.stop().await;
    }

    async fn fifty_at_once_over_two_processes_are_one_charge(app: &TestApp) {
        let other = TestApp::on(Arc::clone(&app.database), &[]).await;
        let key = Uuid::new_v4();
        let mut connections = Vec::new();
        for n in 0..50 {
            connections.push(if n % 2 == 0 { app.connect().await } else { other.connect().await });
        }
        let bytes = charge_as(key, BODY).bytes();
        for connection in &mut connections {
            connection.send(&bytes).await;
        }
        let (mut created, mut bodies) = (0, Vec::new());
        for connection in &mut connections {
            let answer = connection.response().await;
            if answer.status == 201 {
                created += i32::from(answer.header("idempotent-replayed") == Some("false"));
                bodies.push(answer.body);
            } else {
                answer.assert_problem(409, "request-in-progress");
            }
        }
        bodies.dedup();
        assert_eq!((created, bodies.len(), app.rows().await), (1, 1, [1, 1, 1]));
        other.stop().await;
    }
}
