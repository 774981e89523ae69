//! The body of a charge: one JSON object with three known members, and nothing else.

use serde_json::json;
use uuid::Uuid;

use crate::contracts;
use crate::request::{CANARY, charge, charge_as};

/// The largest charge, and a text that says it.
const CAP: i64 = 999_999_999_999;

fn with_amount(amount: &str) -> String {
    format!("{{\"amountCents\":{amount},\"description\":\"{CANARY}\"}}")
}

fn with_description(text: &str) -> String {
    json!({"amountCents": 4900, "description": text}).to_string()
}

contracts! {
    async fn what_is_no_amount_is_refused_and_named(app: &TestApp) {
        for amount in [
            "0", "-1", "-4900", "-0", "-0.0", "0.0", "1e3", "1E3", "4900.0", "49.99", "\"4900\"",
            "\"canary\"", "true", "null", "{}", "[]", "[4900]", "{\"a\":1,\"a\":2}",
            "9007199254740993", "9223372036854775807", "9223372036854775808",
            "18446744073709551616", "1e400", "1000000000000", &"9".repeat(2000),
        ] {
            let refused = app.send(&charge(&with_amount(amount))).await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "/amountCents", "{amount}: {problem}");
        }
        let missing = app.send(&charge("{\"currency\":\"BRL\"}")).await;
        let problem = missing.assert_problem(400, "invalid-body");
        assert_eq!(problem["errors"][0]["pointer"], "/amountCents");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn the_smallest_and_the_largest_amount_are_charged_and_summed_exactly(app: &TestApp) {
        for _ in 0..10 {
            app.send(&charge(&format!("{{\"amountCents\":{CAP}}}"))).await.assert_created();
        }
        let one = app.send(&charge(r#"{"amountCents":1}"#)).await;
        assert_eq!(one.assert_created().json()["amountCents"], 1);
        let sum = "SELECT sum(amount_cents)::text FROM charges";
        let sum: String = app.client().await.query_one(sum, &[]).await.unwrap().get(0);
        assert_eq!(sum, (10 * CAP + 1).to_string());
    }

    async fn what_is_not_one_json_object_is_refused_and_the_connection_closed(app: &TestApp) {
        let deep = |open: &str, close: &str| {
            format!("{{\"amountCents\":1,\"x\":{}{}}}", open.repeat(200), close.repeat(200))
        };
        let bodies: &[&[u8]] = &[
            b"", b" ", b"null", b"true", b"4900", b"\"canary\"", b"[]", br#"[{"amountCents":1}]"#,
            b"{", b"}", b"canary", br#"{"amountCents":1}{"amountCents":2}"#,
            br#"{"amountCents":1} canary"#, br#"{"amountCents":1}]"#, br#"{"amountCents":1,}"#,
            br#"{,"amountCents":1}"#, br#"{"amountCents":1 /* canary */}"#,
            b"// canary\n{\"amountCents\":1}", b"\xef\xbb\xbf{\"amountCents\":1}",
            b"\xff\xfe{\0\"\0", br#"{"amountCents":04900}"#, br#"{"amountCents":+4900}"#,
            br#"{"amountCents":NaN}"#, br#"{"amountCents":Infinity}"#,
            br#"{"amountCents":-Infinity}"#, br#"{"amountCents":0x10}"#,
            br#"{"amountCents":1_000}"#, br#"{"amountCents":.5}"#, br#"{"amountCents":5.}"#,
            br#"{'amountCents':1}"#, b"{amountCents:1}", br#"{"amountCents" 1}"#,
            b"{\"amountCents\":1,\"description\":\"\xff\"}",
            b"{\"amountCents\":1,\"description\":\"\xc0\xaf\"}",
            b"{\"amountCents\":1,\"description\":\"\xed\xa0\x80\"}",
            b"{\"amountCents\":1,\"description\":\"a\nb\"}",
            br#"{"amountCents":1,"description":"\x41"}"#,
            b"{\"amountCents\":1,\"description\":\"canary",
            b"amountCents=4900",
        ];
        for body in bodies {
            let mut connection = app.connect().await;
            let text = charge("").raw_body(body).without("Content-Length");
            let text = text.with("Content-Length", &body.len().to_string());
            connection.send(&text.bytes()).await;
            let refused = connection.response().await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "", "{}", String::from_utf8_lossy(body));
            connection.closed().await;
        }
        for body in [deep("[", "]"), deep("{\"a\":", "1}"), "[".repeat(16_000)] {
            app.send(&charge(&body)).await.assert_problem(400, "invalid-body");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_text_that_is_no_unicode_is_refused(app: &TestApp) {
        for text in [r"\ud800", r"\udc00", r"\ud800a", r"\udc00\ud800", r"a\u0000b", r"\u0000"] {
            let body = format!("{{\"amountCents\":1,\"description\":\"{text}\"}}");
            let refused = app.send(&charge(&body)).await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "/description", "{text}");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_member_that_is_unknown_or_given_twice_is_refused(app: &TestApp) {
        for body in [
            r#"{"amountCents":1,"canary":1}"#,
            r#"{"amountCents":1,"canary":1,"canary":1}"#,
            r#"{"amountCents":1,"AmountCents":1}"#,
            r#"{"amountCents":1,"amount_cents":1}"#,
            r#"{"amountCents":1,"":1}"#,
            r#"{"amountCents":1,"a\u0000":1}"#,
            r#"{"amountCents":1,"__proto__":{}}"#,
            r#"{"amountCents":1,"canary":1e99999}"#,
            r#"{"amountCents":1,"amountCents":1}"#,
            r#"{"amountCents":1,"\u0061mountCents":1}"#,
            r#"{"amountCents":1,"currency":"BRL","currency":"BRL"}"#,
            r#"{"amountCents":1,"currency":null,"currency":null}"#,
            r#"{"amountCents":1,"description":null,"description":"canary"}"#,
        ] {
            app.send(&charge(body)).await.assert_problem(400, "invalid-body");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_missing_currency_is_the_default_also_for_the_fingerprint(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, r#"{"amountCents":4900}"#)).await;
        assert_eq!(first.assert_created().json()["currency"], "BRL");
        for spelling in [
            r#"{"amountCents":4900,"currency":null}"#,
            r#"{"amountCents":4900,"currency":"BRL"}"#,
            r#"{"currency":"\u0042RL","description":null,"amountCents":4900}"#,
        ] {
            app.send(&charge_as(key, spelling)).await.assert_replay_of(&first);
        }
    }

    async fn what_is_no_currency_is_refused(app: &TestApp) {
        for currency in [
            "\"brl\"", "\"Brl\"", "\"BR\"", "\"BRLL\"", "\"ZZZ\"", "\"\"", "\" BRL\"", "\"BRL \"",
            "\"ВRL\"", "\"ＢＲＬ\"", "\"canary\"", "986", "true", "[\"BRL\"]", "{}",
        ] {
            let body = format!("{{\"amountCents\":1,\"currency\":{currency}}}");
            let refused = app.send(&charge(&body)).await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "/currency", "{currency}");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_description_has_at_most_500_characters_of_any_size(app: &TestApp) {
        for text in ["é".repeat(500), "💶".repeat(500), "a".repeat(500), String::new()] {
            app.send(&charge(&with_description(&text))).await.assert_created();
        }
        for text in ["a".repeat(501), "é".repeat(501), "a".repeat(15_000)] {
            let refused = app.send(&charge(&with_description(&text))).await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "/description");
        }
        for description in ["1", "true", "[]", "{}", "[\"canary\"]"] {
            let body = format!("{{\"amountCents\":1,\"description\":{description}}}");
            app.send(&charge(&body)).await.assert_problem(400, "invalid-body");
        }
    }

    async fn text_is_data_whatever_it_looks_like(app: &TestApp) {
        let texts = [
            "line\r\nSet-Cookie: a=b",
            "\u{1b}[31mred\u{1b}[0m\u{7}",
            "\u{202e}live",
            "'; DROP TABLE charges; --",
            "{{7*7}} ${jndi:ldap://a} %s%n <script>alert(1)</script>",
            "../../etc/passwd",
            "\u{feff}\u{200b}\u{fffd}\u{ffff}\u{fdd0}\u{10ffff}\u{7f}\u{80}",
            "\\u0041 \" \\",
        ];
        for text in texts {
            let key = Uuid::new_v4();
            let created = app.send(&charge_as(key, &with_description(text))).await;
            assert_eq!(created.assert_created().json()["description"], text);
            let again = app.send(&charge_as(key, &with_description(text))).await;
            again.assert_replay_of(&created);
            let stored = "SELECT description FROM charges WHERE idempotency_key = $1";
            let row = app.client().await.query_one(stored, &[&key]).await.unwrap();
            assert_eq!(row.get::<_, &str>(0), text);
        }
    }

    async fn a_card_number_is_refused_by_name_and_other_long_numbers_are_not(app: &TestApp) {
        for card in [
            "4111111111111111", "paid with 4111 1111 1111 1111", "5555-5555-5555-4444",
            "378282246310005", "6011111111111117", "4222222222222", "x4111111111111111y",
            "4111  1111\u{a0}1111.1111", "4111 1111 1111 1111 12/27", "４１１１１１１１１１１１１１１１",
        ] {
            let refused = app.send(&charge(&with_description(card))).await;
            let problem = refused.assert_problem(400, "invalid-body");
            assert_eq!(problem["errors"][0]["pointer"], "/description");
            assert!(!problem.to_string().contains("1111"), "{problem}");
        }
        for number in ["4111111111111112", "order 1234567890123452", "+55 11 91234-5678"] {
            app.send(&charge(&with_description(number))).await.assert_created();
        }
    }

    async fn all_faults_of_a_body_are_listed_at_once(app: &TestApp) {
        let body = r#"{"amountCents":"canary","currency":"canary","description":7,"canary":0}"#;
        let problem = app.send(&charge(body)).await.assert_problem(400, "invalid-body");
        let errors = problem["errors"].as_array().unwrap();
        let pointers: Vec<_> = errors.iter().map(|error| &error["pointer"]).collect();
        assert_eq!(pointers, ["", "/amountCents", "/currency", "/description"]);
        assert!(errors.iter().all(|error| error["detail"].is_string()));
    }
}
