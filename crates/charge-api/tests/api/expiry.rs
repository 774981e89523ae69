//! How long a key lasts. Only the database's clock counts, so a test moves `expires_at`, not a clock.

use uuid::Uuid;

use crate::app::TestApp;
use crate::contracts;
use crate::request::charge_as;

const BODY: &str = r#"{"amountCents":4900}"#;
const OTHER: &str = r#"{"amountCents":4901}"#;

async fn expire_all(app: &TestApp) {
    let past = "UPDATE idempotency_keys SET expires_at = now() - interval '1 second'";
    app.client().await.batch_execute(past).await.unwrap();
}

/// Seconds from the creation of the one key to its end.
async fn kept_for(app: &TestApp) -> Option<f64> {
    let kept = "SELECT extract(epoch FROM expires_at - created_at)::float8 FROM idempotency_keys";
    app.client().await.query_one(kept, &[]).await.unwrap().get(0)
}

contracts! {
    async fn an_expired_key_is_new_also_for_another_payload(app: &TestApp) {
        let key = Uuid::new_v4();
        let mut ids = Vec::new();
        for body in [BODY, BODY, OTHER] {
            let created = app.send(&charge_as(key, body)).await;
            ids.push(created.assert_created().json()["id"].clone());
            app.send(&charge_as(key, body)).await.assert_replay_of(&created);
            expire_all(app).await;
        }
        ids.dedup();
        assert_eq!(ids.len(), 3);
        assert_eq!(app.rows().await, [1, 3, 3]);
        assert_eq!((app.outcomes("created"), app.outcomes("replayed")), (3.0, 3.0));
    }

    async fn at_once_an_expired_key_is_new_for_one_alone(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, BODY)).await.assert_created();
        expire_all(app).await;
        let mut connections = Vec::new();
        for _ in 0..20 {
            let mut connection = app.connect().await;
            connection.send(&charge_as(key, BODY).bytes()).await;
            connections.push(connection);
        }
        for connection in &mut connections {
            let answer = connection.response().await;
            if answer.status != 201 {
                answer.assert_problem(409, "request-in-progress");
            }
        }
        assert_eq!(app.rows().await, [1, 2, 2]);
    }

    // What became of it is for recovery to find out. Until then it is not run a second time.
    async fn an_unfinished_key_is_in_flight_however_old(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, BODY)).await.assert_created();
        let unfinish = "UPDATE idempotency_keys
            SET state = 'in_progress', response_status = NULL, response_content_type = NULL,
                response_body = NULL, expires_at = now() - interval '2 days'";
        app.client().await.batch_execute(unfinish).await.unwrap();
        app.send(&charge_as(key, BODY)).await.assert_problem(409, "request-in-progress");
        app.send(&charge_as(key, OTHER)).await.assert_problem(422, "idempotency-key-reused");
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    async fn a_key_is_kept_for_a_day(app: &TestApp) {
        app.send(&charge_as(Uuid::new_v4(), BODY)).await.assert_created();
        assert!((kept_for(app).await.unwrap() - 86_400.0).abs() < 1.0);
    }

    with &[("ONCEBOX_IDEMPOTENCY_RETENTION", "7d")];
    async fn a_key_is_kept_for_as_long_as_the_setting_says(app: &TestApp) {
        app.send(&charge_as(Uuid::new_v4(), BODY)).await.assert_created();
        assert!((kept_for(app).await.unwrap() - 7.0 * 86_400.0).abs() < 1.0);
    }

    with &[("ONCEBOX_IDEMPOTENCY_RETENTION", "never")];
    async fn a_key_may_never_expire(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        assert_eq!(first.assert_created().status, 201);
        assert_eq!(kept_for(app).await, None);
        app.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
    }
}
