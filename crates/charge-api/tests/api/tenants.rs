//! API keys: who gets in, and that nobody meets what is another tenant's.

use domain::NewApiKey;
use serde_json::Value;
use uuid::Uuid;

use crate::app::{TestApp, eventually};
use crate::contracts;
use crate::request::{CANARY, Request, charge, charge_as, get, post};

const KEYS: &[(&str, &str)] = &[("ONCEBOX_AUTH", "api_keys"), ("ONCEBOX_API_KEYS_CACHE_TTL", "0s")];
const KEYS_REMEMBERED: &[(&str, &str)] =
    &[("ONCEBOX_AUTH", "api_keys"), ("ONCEBOX_API_KEYS_CACHE_TTL", "50ms")];

/// A new key, as it is sent.
pub async fn api_key(app: &TestApp, tenant: &str, may_write: bool, expires_in: f64) -> String {
    let key = NewApiKey::from_random(
        Uuid::new_v4().into_bytes()[..8].try_into().unwrap(),
        [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat().try_into().unwrap(),
    );
    let insert = "INSERT INTO api_keys (tenant_id, prefix, sha256, name, may_write, expires_at)
                  VALUES ($1, $2, $3, 'test', $4, clock_timestamp() + make_interval(secs => $5))";
    let hash: &[u8] = key.key.sha256();
    let prefix = key.key.prefix();
    let client = app.client().await;
    client.execute(insert, &[&tenant, &prefix, &hash, &may_write, &expires_in]).await.unwrap();
    key.reveal().to_owned()
}

async fn revoke_all(app: &TestApp) {
    app.client().await.batch_execute("UPDATE api_keys SET revoked_at = now()").await.unwrap();
}

pub fn by(key: &str, request: Request) -> Request {
    request.with("Authorization", &format!("Bearer {key}"))
}

contracts! {
    with KEYS;
    async fn without_a_good_key_every_request_is_401_and_leaves_nothing(app: &TestApp) {
        let good = api_key(app, "a", true, 3600.0).await;
        let expired = api_key(app, "a", true, -1.0).await;
        let wrong_secret = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
        let unknown = format!("obx_{}_{}", "0".repeat(16), "0".repeat(64));
        let body = r#"{"amountCents":4900}"#;

        let none = app.send(&charge(body)).await;
        none.assert_problem(401, "unauthenticated");
        assert_eq!(none.header("www-authenticate"), Some("Bearer realm=\"oncebox\""));
        let bad = ["", "Bearer", "Bearer ", "Bearer canary", &good, "Basic Y2FuYXJ5OmNhbmFyeQ=="];
        let bad = bad.map(str::to_owned).into_iter().chain([
            format!("Bearer {wrong_secret}"),
            format!("Bearer {unknown}"),
            format!("Bearer {expired}"),
            format!("Bearer {good} {good}"),
            format!("Bearer {}", good.to_uppercase()),
            format!("Bearer {}", &good[..20]),
        ]);
        for authorization in bad {
            let response = app.send(&charge(body).with("Authorization", &authorization)).await;
            response.assert_problem(401, "unauthenticated");
            let challenge = "Bearer realm=\"oncebox\", error=\"invalid_token\"";
            assert_eq!(response.header("www-authenticate"), Some(challenge), "{authorization}");
        }
        let twice = by(&good, by(&good, charge(body)));
        app.send(&twice).await.assert_problem(401, "unauthenticated");

        // Nothing else is told before: not what is there, nor what is wrong with the request.
        let oversized = format!(r#"{{"amountCents":1,"description":"{}"}}"#, "x".repeat(40_000));
        for request in [
            get("/nothing"),
            get("/charges/018f0000-0000-7000-8000-000000000000"),
            Request::new("DELETE", "/charges"),
            post(body),
            charge("{"),
            charge(body).without("Content-Type").with("Content-Type", "text/plain"),
            charge(&oversized),
        ] {
            app.send(&request).await.assert_problem(401, "unauthenticated");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);

        app.send(&by(&good, charge(body))).await.assert_created();
        let lower = charge(body).with("Authorization", &format!("bearer {good}"));
        app.send(&lower).await.assert_created();
        app.send(&by(&good, get("/nothing"))).await.assert_problem(404, "not-found");
        let page = app.send(&get("/problems/unauthenticated")).await;
        assert_eq!(page.status, 200, "the page that explains it is open");
    }

    with KEYS;
    async fn a_key_that_may_only_read_is_403_for_a_charge(app: &TestApp) {
        let writes = api_key(app, "a", true, 3600.0).await;
        let reads = api_key(app, "a", false, 3600.0).await;
        let body = r#"{"amountCents":4900}"#;
        app.send(&by(&reads, charge(body))).await.assert_problem(403, "forbidden");
        app.send(&by(&reads, Request::new("DELETE", "/nothing"))).await
            .assert_problem(403, "forbidden");
        assert_eq!(app.rows().await, [0, 0, 0]);
        let created = app.send(&by(&writes, charge(body))).await;
        let location = created.assert_created().header("location").unwrap().to_owned();
        let shown = app.send(&by(&reads, get(&location))).await;
        assert_eq!((shown.status, shown.body), (200, created.body));
    }

    with KEYS;
    async fn tenants_share_a_key_and_never_see_each_other(app: &TestApp) {
        let (a, b) = (api_key(app, "a", true, 3600.0).await, api_key(app, "b", true, 3600.0).await);
        let key = Uuid::new_v4();
        let secret = format!(r#"{{"amountCents":4900,"description":"{CANARY}"}}"#);
        let plain = r#"{"amountCents":1}"#;

        let of_a = app.send(&by(&a, charge_as(key, &secret))).await;
        of_a.assert_created();
        // Another payload under the same key: a tenant that shared keys would get 422 here.
        let of_b = app.send(&by(&b, charge_as(key, plain))).await;
        of_b.assert_created();
        let id = of_a.json()["id"].as_str().unwrap().to_owned();
        for response in [
            of_b.clone(),
            app.send(&by(&b, charge_as(key, plain))).await,
            app.send(&by(&b, charge_as(key, &secret))).await,
            app.send(&by(&b, get(&format!("/charges/{id}")))).await,
        ] {
            let text = format!("{:?}{}", response.headers, String::from_utf8_lossy(&response.body));
            assert!(!text.contains(&id) && !text.contains(CANARY), "{text}");
        }
        let hidden = app.send(&by(&b, get(&format!("/charges/{id}")))).await;
        hidden.assert_problem(404, "not-found");
        app.send(&by(&a, charge_as(key, &secret))).await.assert_replay_of(&of_a);
        assert_eq!(app.send(&by(&a, get(&format!("/charges/{id}")))).await.status, 200);

        let tenants = "SELECT tenant_id FROM charges UNION ALL SELECT tenant_id FROM outbox
                       UNION ALL SELECT tenant_id FROM idempotency_keys ORDER BY 1";
        let rows = app.client().await.query(tenants, &[]).await.unwrap();
        let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(rows, ["a", "a", "a", "b", "b", "b"]);
        let payload = "SELECT payload FROM outbox WHERE tenant_id = 'b'";
        let row = app.client().await.query_one(payload, &[]).await.unwrap();
        let event: Value = serde_json::from_slice(row.get(0)).unwrap();
        assert_eq!(event["tenantId"], "b");
    }

    with KEYS;
    async fn a_revoked_key_ends_at_once_when_nothing_is_remembered(app: &TestApp) {
        let key = api_key(app, "a", true, 3600.0).await;
        assert_eq!(app.send(&by(&key, get("/nothing"))).await.status, 404);
        revoke_all(app).await;
        app.send(&by(&key, get("/nothing"))).await.assert_problem(401, "unauthenticated");
    }

    with KEYS_REMEMBERED;
    async fn a_revoked_key_ends_when_what_is_remembered_does(app: &TestApp) {
        let key = api_key(app, "a", true, 3600.0).await;
        assert_eq!(app.send(&by(&key, get("/nothing"))).await.status, 404);
        revoke_all(app).await;
        eventually("the key is refused", async || {
            (app.send(&by(&key, get("/nothing"))).await.status == 401).then_some(())
        })
        .await;
    }
}
