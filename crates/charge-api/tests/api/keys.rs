//! The Idempotency-Key header: one UUID, bare or quoted, and nothing else.

use uuid::Uuid;

use crate::contracts;
use crate::request::{Request, charge, charge_as, post};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

fn with_key(value: &str) -> Request {
    post(BODY).with("Idempotency-Key", value)
}

contracts! {
    async fn a_missing_key_and_a_blank_one_are_missing(app: &TestApp) {
        for request in [
            post(BODY),
            with_key(""),
            with_key("   "),
            with_key("\t"),
            post(BODY).with("X-Idempotency-Key", &Uuid::new_v4().to_string()),
            post(BODY).with("Idempotency_Key", &Uuid::new_v4().to_string()),
        ] {
            let problem = app.send(&request).await;
            let retryable = &problem.assert_problem(400, "idempotency-key-missing")["retryable"];
            assert_eq!(*retryable, false);
            let link = "</problems/idempotency-key-missing>; rel=\"describedby\"";
            assert_eq!(problem.header("link"), Some(link));
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_key_elsewhere_than_in_its_header_is_missing(app: &TestApp) {
        let key = Uuid::new_v4();
        let in_query = post(BODY).line(&format!("POST /charges?idempotencyKey={key} HTTP/1.1"));
        app.send(&in_query).await.assert_problem(400, "idempotency-key-missing");
        let in_body = post(format!("{{\"amountCents\":1,\"idempotencyKey\":\"{key}\"}}"));
        app.send(&in_body).await.assert_problem(400, "idempotency-key-missing");
        let in_trailer = post(BODY).without("Content-Length").with("Transfer-Encoding", "chunked");
        let in_trailer = in_trailer.raw_body(format!(
            "{:x}\r\n{BODY}\r\n0\r\nIdempotency-Key: {key}\r\n\r\n",
            BODY.len()
        ));
        app.send_last(&in_trailer.bytes()).await.assert_problem(400, "body-incomplete");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn bare_quoted_and_upper_case_are_one_key(app: &TestApp) {
        let key = Uuid::new_v4().to_string();
        let first = app.send(&with_key(&key)).await;
        first.assert_created();
        assert_eq!(first.header("idempotency-key"), Some(key.as_str()));
        for spelling in [
            format!("\"{key}\""),
            key.to_uppercase(),
            format!("\"{}\"", key.to_uppercase()),
            format!("  {key} \t"),
            format!("\t\"{key}\"  "),
        ] {
            app.send(&with_key(&spelling)).await.assert_replay_of(&first);
        }
        let other_case = post(BODY).with("iDEMPOTENCY-kEY", &key);
        app.send(&other_case).await.assert_replay_of(&first);
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    async fn every_other_spelling_is_refused(app: &TestApp) {
        let key = Uuid::new_v4().to_string();
        let urn = format!("urn:uuid:{key}");
        for value in [
            &key.replace('-', ""),
            &format!("{{{key}}}"),
            &urn,
            &urn.to_uppercase(),
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "abc",
            "canary",
            "1-1-1-1-1",
            &key[1..],
            &format!("{key}0"),
            &format!("{}g", &key[..35]),
            &format!("\"{key}"),
            &format!("{key}\""),
            &format!("\"{}\"{}\"", &key[..10], &key[10..]),
            &format!("\"\\{key}\""),
            &format!("'{key}'"),
            "\"\"",
            "\" \"",
            &format!("\" {key}\""),
            &format!("\"{key}\";a=1"),
            &format!("\"{key}\"; a"),
            &format!("{key};a=1"),
            &format!("{key}, {key}"),
            &format!("{key},"),
            &format!("\"{key}\", \"{key}\""),
            &format!("(\"{key}\")"),
            &format!(":{key}:"),
            &format!("key={key}"),
            &key.replace('-', "\t"),
            &key.replace('-', "‐"),
            &"a".repeat(8 * 1024),
        ] {
            let problem = app.send(&with_key(value)).await;
            problem.assert_problem(400, "idempotency-key-invalid");
            assert!(problem.header("link").unwrap().contains("idempotency-key-invalid"));
        }
        let latin_1 = post(BODY).with_bytes("Idempotency-Key", b"8e03978e-40d5-43e8-bc93-\xe9");
        app.send(&latin_1).await.assert_problem(400, "idempotency-key-invalid");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn two_header_lines_are_refused_also_when_equal(app: &TestApp) {
        let key = Uuid::new_v4();
        for second in [key.to_string(), Uuid::new_v4().to_string(), "canary".into(), String::new()] {
            let twice = charge_as(key, BODY).with("idempotency-key", &second);
            app.send(&twice).await.assert_problem(400, "idempotency-key-invalid");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_faulty_key_is_told_before_a_faulty_body(app: &TestApp) {
        let both = with_key("abc").raw_body("x".repeat(BODY.len()));
        app.send(&both).await.assert_problem(400, "idempotency-key-invalid");
        let large = post("x".repeat(20_000)).with("Idempotency-Key", "abc");
        app.send(&large).await.assert_problem(413, "body-too-large");
        let media_type = with_key("abc").without("Content-Type");
        app.send(&media_type).await.assert_problem(415, "unsupported-media-type");
    }

    async fn a_key_is_new_again_after_a_400(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, "{}")).await.assert_problem(400, "invalid-body");
        app.send(&charge_as(key, BODY)).await.assert_created();
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    async fn each_key_is_a_charge_of_its_own(app: &TestApp) {
        let (one, two) = (app.send(&charge(BODY)).await, app.send(&charge(BODY)).await);
        assert_ne!(one.assert_created().json()["id"], two.assert_created().json()["id"]);
        assert_eq!(app.rows().await, [2, 2, 2]);
    }
}
