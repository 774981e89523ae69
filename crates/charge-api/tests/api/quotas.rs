//! What one tenant may use: past it 429, nothing stored, and nobody else is held up.

use uuid::Uuid;

use crate::app::{eventually, rows};
use crate::contracts;
use crate::request::{charge, charge_as};
use crate::tenants::{api_key, by};

const RATE: &[(&str, &str)] = &[
    ("ONCEBOX_AUTH", "api_keys"),
    ("ONCEBOX_LIMITS_REQUESTS_PER_SECOND", "1"),
    ("ONCEBOX_LIMITS_BURST", "2"),
];
const LIVE_KEYS: &[(&str, &str)] =
    &[("ONCEBOX_AUTH", "api_keys"), ("ONCEBOX_LIMITS_LIVE_KEYS", "2")];
const BODY: &str = r#"{"amountCents":4900}"#;

contracts! {
    with RATE;
    async fn requests_past_the_rate_are_429_and_store_nothing(app: &TestApp) {
        let (a, b) = (api_key(app, "a", true, 3600.0).await, api_key(app, "b", true, 3600.0).await);
        let mut created = 0;
        // Two at once, and one more a second: a slow machine needs more of them to be refused.
        let refused = loop {
            let response = app.send(&by(&a, charge(BODY))).await;
            if response.status == 429 {
                break response;
            }
            response.assert_created();
            created += 1;
        };
        assert!(created >= 2);
        assert_eq!(refused.assert_problem(429, "too-many-requests")["retryable"], true);
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(seconds, 1);
        assert_eq!(app.rows().await, [created; 3]);
        app.send(&by(&b, charge(BODY))).await.assert_created();
    }

    with LIVE_KEYS;
    async fn keys_past_the_quota_are_429_while_old_ones_are_replayed(app: &TestApp) {
        let (a, b) = (api_key(app, "a", true, 3600.0).await, api_key(app, "b", true, 3600.0).await);
        let key = Uuid::new_v4();
        let first = app.send(&by(&a, charge_as(key, BODY))).await;
        first.assert_created();
        app.send(&by(&a, charge(BODY))).await.assert_created();

        let refused = app.send(&by(&a, charge(BODY))).await;
        assert_eq!(refused.assert_problem(429, "too-many-keys")["retryable"], true);
        assert!(refused.header("retry-after").is_some());
        assert_eq!(rows(&app.client().await).await, [2, 2, 2]);
        app.send(&by(&a, charge_as(key, BODY))).await.assert_replay_of(&first);
        let other = app.send(&by(&a, charge_as(key, r#"{"amountCents":1}"#))).await;
        other.assert_problem(422, "idempotency-key-reused");
        app.send(&by(&b, charge(BODY))).await.assert_created();

        // Room again, when the retention job has been.
        let remove = "DELETE FROM idempotency_keys WHERE key <> $1";
        app.client().await.execute(remove, &[&key]).await.unwrap();
        eventually("there is room", async || {
            (app.send(&by(&a, charge(BODY))).await.status == 201).then_some(())
        })
        .await;
    }
}
