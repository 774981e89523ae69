//! GET /charges: pages, and the charge of a key.

use serde_json::Value;
use uuid::Uuid;

use crate::app::TestApp;
use crate::contracts;
use crate::request::{CANARY, Request, charge, charge_as, get};
use crate::tenants::{api_key, by};

const KEYS: &[(&str, &str)] = &[("ONCEBOX_AUTH", "api_keys"), ("ONCEBOX_API_KEYS_CACHE_TTL", "0s")];
const BODY: &str = r#"{"amountCents":4900}"#;

/// Ids of the charges on a page, and where the next one is.
fn page(body: &Value) -> (Vec<String>, Option<String>) {
    let charges = body["charges"].as_array().expect("a list");
    let ids = charges.iter().map(|charge| charge["id"].as_str().unwrap().to_owned()).collect();
    (ids, body["next"].as_str().map(str::to_owned))
}

async fn create(app: &TestApp, number: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..number {
        let created = app.send(&charge(BODY)).await;
        ids.push(created.assert_created().json()["id"].as_str().unwrap().to_owned());
    }
    // Within one millisecond UUIDs of one process still rise.
    ids.reverse();
    ids
}

contracts! {
    async fn pages_lead_from_the_newest_charge_to_the_oldest(app: &TestApp) {
        assert_eq!(app.send(&get("/charges")).await.json(), serde_json::json!({"charges": []}));
        let newest_first = create(app, 5).await;
        let mut target = "/charges?limit=2".to_owned();
        let mut seen = Vec::new();
        for pages_left in [2, 1, 0] {
            let response = app.send(&get(&target)).await;
            assert_eq!(response.status, 200);
            let (ids, next) = page(&response.json());
            let link = next.as_ref().map(|next| format!("<{next}>; rel=\"next\""));
            assert_eq!(response.header("link"), link.as_deref());
            assert_eq!(next.is_some(), pages_left > 0);
            seen.extend(ids);
            // What is new does not move the pages that follow.
            create(app, 1).await;
            target = next.unwrap_or_default();
        }
        assert_eq!(seen, newest_first);
        let (ids, next) = page(&app.send(&get("/charges")).await.json());
        assert_eq!((ids.len(), next), (8, None));
        let (ids, next) = page(&app.send(&get("/charges?limit=8")).await.json());
        assert_eq!((ids.len(), next), (8, None), "a full last page has no next");
    }

    async fn what_is_listed_is_what_was_answered_and_head_is_get_without_it(app: &TestApp) {
        let created = app.send(&charge(r#"{"amountCents":1,"description":"café"}"#)).await;
        let listed = app.send(&get("/charges")).await;
        assert_eq!(listed.json()["charges"][0], created.json());
        let mut connection = app.connect().await;
        connection.send(&Request::new("HEAD", "/charges").bytes()).await;
        let head = connection.response_to_head().await;
        let length = listed.body.len().to_string();
        assert_eq!((head.status, head.header("content-length")), (200, Some(length.as_str())));
    }

    async fn a_parameter_that_is_wrong_is_named_and_not_repeated(app: &TestApp) {
        create(app, 2).await;
        let key = Uuid::new_v4();
        let next = page(&app.send(&get("/charges?limit=1")).await.json()).1.unwrap();
        let cursor = next.split("cursor=").nth(1).unwrap();
        for (query, parameter) in [
            ("limit=0".to_owned(), "limit"),
            ("limit=101".into(), "limit"),
            ("limit=".into(), "limit"),
            ("limit=-1".into(), "limit"),
            ("limit=%2B5".into(), "limit"),
            ("limit=1.0".into(), "limit"),
            ("limit=canary".into(), "limit"),
            ("limit=99999999999999999999".into(), "limit"),
            ("limit=1&limit=1".into(), "limit"),
            ("cursor=".into(), "cursor"),
            ("cursor=canary".into(), "cursor"),
            (format!("cursor={cursor}="), "cursor"),
            (format!("cursor={cursor}AAAA"), "cursor"),
            (format!("cursor={}", &cursor[1..]), "cursor"),
            (format!("cursor=B{}", &cursor[1..]), "cursor"),
            (format!("cursor={cursor}&cursor={cursor}"), "cursor"),
            ("idempotencyKey=".into(), "idempotencyKey"),
            ("idempotencyKey=canary".into(), "idempotencyKey"),
            (format!("idempotencyKey={}", key.simple()), "idempotencyKey"),
            ("idempotencyKey=00000000-0000-0000-0000-000000000000".into(), "idempotencyKey"),
            (format!("idempotencyKey={key}&idempotencyKey={key}"), "idempotencyKey"),
            (format!("idempotencyKey={key}&limit=1"), "idempotencyKey"),
        ] {
            let refused = app.send(&get(&format!("/charges?{query}"))).await;
            let problem = refused.assert_problem(400, "invalid-parameter");
            assert_eq!(problem["parameter"], parameter, "{query}");
            assert!(problem["detail"].as_str().unwrap().starts_with(parameter), "{query}");
        }
        for query in ["canary=1", "Limit=1", "limit=1&canary", "idempotency_key=canary", "%00=1", "=", "%ff"] {
            let refused = app.send(&get(&format!("/charges?{query}"))).await;
            let problem = refused.assert_problem(400, "invalid-parameter");
            assert_eq!(problem["parameter"], Value::Null, "{query}");
        }
    }

    async fn a_key_tells_charged_running_and_not_charged_apart(app: &TestApp) {
        let key = Uuid::new_v4();
        let target = format!("/charges?idempotencyKey={key}");
        let none = app.send(&get(&target)).await;
        assert_eq!((none.status, none.json()), (200, serde_json::json!({"charges": []})));

        // Another process is in the middle of its transaction for the key.
        let writer = app.client().await;
        let tenant = domain::TenantId::default_tenant();
        let parsed = domain::IdempotencyKey::parse(key.to_string().as_bytes()).unwrap();
        let fingerprint = domain::Fingerprint::of_charge(&domain::NewCharge {
            amount: domain::AmountCents::new(1).unwrap(),
            currency: domain::Currency::parse("BRL").unwrap(),
            description: None,
        });
        let endpoint = domain::Endpoint::CreateCharge;
        let lock = store::key_lock::KeyLock::of(&tenant, endpoint, parsed, &fingerprint);
        writer.batch_execute("BEGIN").await.unwrap();
        writer.query("SELECT pg_try_advisory_xact_lock($1)", &[&lock.key]).await.unwrap();
        let running = app.send(&get(&target)).await;
        assert_eq!(running.assert_problem(409, "request-in-progress")["retryable"], true);
        assert!(running.header("retry-after").is_some());
        writer.batch_execute("ROLLBACK").await.unwrap();

        let created = app.send(&charge_as(key, BODY)).await;
        let charged = app.send(&get(&target)).await;
        assert_eq!((charged.status, &charged.json()["charges"][0]), (200, &created.json()));
        let quoted = app.send(&get(&format!("/charges?idempotencyKey=%22{key}%22"))).await;
        assert_eq!(quoted.body, charged.body);
        // An expired key is answered as long as it is there.
        let expire = "UPDATE idempotency_keys SET expires_at = now()";
        app.client().await.batch_execute(expire).await.unwrap();
        assert_eq!(app.send(&get(&target)).await.body, charged.body);
        assert_eq!(app.rows().await, [1, 1, 1], "reading writes nothing");
    }

    with KEYS;
    async fn a_tenant_reads_its_own_charges_and_a_read_only_key_is_enough(app: &TestApp) {
        let (a, b) = (api_key(app, "a", true, 3600.0).await, api_key(app, "b", false, 3600.0).await);
        let a_reads = api_key(app, "a", false, 3600.0).await;
        let key = Uuid::new_v4();
        let secret = format!(r#"{{"amountCents":4900,"description":"{CANARY}"}}"#);
        for body in [&secret, BODY] {
            app.send(&by(&a, charge_as(if body == BODY { Uuid::new_v4() } else { key }, body))).await
                .assert_created();
        }
        let own = app.send(&by(&a_reads, get("/charges?limit=1"))).await.json();
        let next = own["next"].as_str().unwrap().to_owned();
        for target in ["/charges".to_owned(), next, format!("/charges?idempotencyKey={key}")] {
            let hidden = app.send(&by(&b, get(&target))).await;
            assert_eq!((hidden.status, hidden.json()), (200, serde_json::json!({"charges": []})));
            app.send(&get(&target)).await.assert_problem(401, "unauthenticated");
            let (ids, _) = page(&app.send(&by(&a_reads, get(&target))).await.json());
            assert!(!ids.is_empty(), "{target}");
        }
    }
}
