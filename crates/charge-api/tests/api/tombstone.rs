//! `idempotency.after_expiry = tombstone`: an expired key is known, and nothing is charged again.

use uuid::Uuid;

use crate::app::{TestApp, eventually, within};
use crate::contracts;
use crate::request::{charge_as, get};

const TOMBSTONE: &[(&str, &str)] =
    &[("ONCEBOX_IDEMPOTENCY_AFTER_EXPIRY", "tombstone"), ("ONCEBOX_RETENTION_INTERVAL", "1s")];
const BODY: &str = r#"{"amountCents":4900}"#;

/// As if every key had been used a retention ago.
async fn expire_all(app: &TestApp) {
    let expire = "UPDATE idempotency_keys SET expires_at = clock_timestamp() - interval '1 s'";
    app.client().await.batch_execute(expire).await.unwrap();
}

contracts! {
    with TOMBSTONE;
    async fn an_expired_key_leads_to_its_charge_and_writes_nothing(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        let location = first.assert_created().header("location").unwrap().to_owned();
        app.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
        expire_all(app).await;

        for _ in 0..2 {
            let expired = app.send(&charge_as(key, BODY).with("Prefer", "wait=5")).await;
            let problem = expired.assert_problem(409, "idempotency-key-expired");
            assert_eq!(problem["retryable"], false);
            assert_eq!(problem["charge"], location);
            let link = format!("<{location}>; rel=\"related\"");
            assert_eq!(expired.header("link"), Some(link.as_str()));
            assert_eq!((expired.header("retry-after"), expired.header("location")), (None, None));
        }
        let shown = app.send(&get(&location)).await;
        assert_eq!((shown.status, shown.body), (200, first.body));
        let other = app.send(&charge_as(key, r#"{"amountCents":1}"#)).await;
        other.assert_problem(422, "idempotency-key-reused");
        assert_eq!(app.rows().await, [1, 1, 1]);
        assert_eq!((app.outcomes("expired"), app.outcomes("payload_conflict")), (2.0, 1.0));
    }

    with TOMBSTONE;
    async fn the_retention_job_comes_to_its_end_and_removes_none(app: &TestApp) {
        app.send(&charge_as(Uuid::new_v4(), BODY)).await.assert_created();
        expire_all(app).await;
        let last = || app.metric("charge_api_retention_last_success_timestamp_seconds");
        let before = eventually("a first run", async || Some(last()).filter(|at| *at > 0.0)).await;
        eventually("a run after the key expired", async || (last() > before + 1.0).then_some(()))
            .await;
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    with TOMBSTONE;
    async fn a_key_that_another_process_is_deleting_is_answered_from_what_is_committed(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, BODY)).await.assert_created();
        expire_all(app).await;
        let job = app.client().await;
        job.batch_execute("BEGIN; DELETE FROM idempotency_keys").await.unwrap();
        let answer = within("an answer", app.send(&charge_as(key, BODY))).await;
        answer.assert_problem(409, "idempotency-key-expired");
        job.batch_execute("COMMIT").await.unwrap();
        app.send(&charge_as(key, BODY)).await.assert_created();
    }
}

#[tokio::test]
async fn set_back_to_new_an_expired_key_is_new_again() {
    let keeping = TestApp::with(TOMBSTONE).await;
    let database = keeping.database.clone();
    let key = Uuid::new_v4();
    keeping.send(&charge_as(key, BODY)).await.assert_created();
    expire_all(&keeping).await;
    keeping.stop().await;
    let renewing = TestApp::on(database, &[]).await;
    renewing.send(&charge_as(key, r#"{"amountCents":1}"#)).await.assert_created();
    assert_eq!(renewing.rows().await[1..], [2, 2]);
    renewing.stop().await;
}

#[tokio::test]
async fn a_key_that_is_kept_for_ever_never_becomes_a_tombstone() {
    let never = [TOMBSTONE, &[("ONCEBOX_IDEMPOTENCY_RETENTION", "never")]].concat();
    let app = TestApp::with(&never).await;
    let key = Uuid::new_v4();
    let first = app.send(&charge_as(key, BODY)).await;
    first.assert_created();
    let older = "UPDATE idempotency_keys SET created_at = created_at - interval '100 years'";
    app.client().await.batch_execute(older).await.unwrap();
    app.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
    app.stop().await;
}

#[test]
fn a_quota_of_keys_beside_tombstones_is_refused_at_start() {
    let settings = [
        ("DATABASE_URL", "postgres://localhost/x"),
        ("ONCEBOX_AUTH", "disabled"),
        ("ONCEBOX_IDEMPOTENCY_AFTER_EXPIRY", "tombstone"),
        ("ONCEBOX_LIMITS_LIVE_KEYS", "5"),
    ];
    let problems = settings::load::<charge_api::Settings>(None, &settings).unwrap_err();
    let text = problems.to_string();
    assert!(text.contains("limits.live_keys") && text.contains("after_expiry"), "{text}");
}
