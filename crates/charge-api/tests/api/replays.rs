//! The same key again, after the first request has ended.

use uuid::Uuid;

use crate::contracts;
use crate::request::charge_as;

const BODY: &str = r#"{"amountCents":4900,"currency":"USD","description":"café"}"#;

const OUTCOMES: [&str; 5] = ["created", "replayed", "payload_conflict", "in_flight", "expired"];

contracts! {
    async fn the_same_request_again_gets_the_same_answer(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        first.assert_created();
        for _ in 0..3 {
            app.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
        }
        assert_eq!(app.rows().await, [1, 1, 1]);
        assert_eq!((app.outcomes("created"), app.outcomes("replayed")), (1.0, 3.0));
    }

    async fn an_answer_has_the_headers_of_the_contract_and_no_others(app: &TestApp) {
        let key = Uuid::new_v4();
        let unusual = charge_as(key, BODY).with("Cookie", "a=b").with("X-Request-Id", "canary");
        let first = app.send(&unusual).await;
        let names = [
            "content-length", "content-type", "date", "idempotency-key", "idempotent-replayed",
            "location",
        ];
        assert_eq!(first.assert_created().header_names(), names);
        let replay = app.send(&charge_as(key, BODY).with("X-Request-Id", "another")).await;
        assert_eq!(replay.header_names(), names);
        assert_eq!(first.header("content-type"), Some("application/json"));
        let id = first.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(first.header("location"), Some(format!("/charges/{id}").as_str()));
    }

    async fn what_means_the_same_is_the_same(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        for spelling in [
            "{ \"description\" : \"caf\\u00e9\",\n\t\"amountCents\" : 4900 , \"currency\":\"USD\" }\r\n",
            r#"{"\u0061mountCents":4900,"currency":"\u0055SD","description":"café"}"#,
        ] {
            app.send(&charge_as(key, spelling)).await.assert_replay_of(&first);
        }
        let chunked = app.send(&charge_as(key, BODY).chunked(5)).await;
        chunked.assert_replay_of(&first);
        let without = Uuid::new_v4();
        let first = app.send(&charge_as(without, r#"{"amountCents":1}"#)).await;
        let null = r#"{"amountCents":1,"description":null,"currency":null}"#;
        app.send(&charge_as(without, null)).await.assert_replay_of(&first);
    }

    async fn another_payload_is_422_and_told_which_members_differ(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, BODY)).await.assert_created();
        for (body, members) in [
            (r#"{"amountCents":4901,"currency":"USD","description":"café"}"#, "amountCents"),
            (r#"{"amountCents":4900,"currency":"EUR","description":"café"}"#, "currency"),
            (r#"{"amountCents":4900,"description":"café"}"#, "currency"),
            (r#"{"amountCents":4900,"currency":"USD","description":"canary"}"#, "description"),
            (r#"{"amountCents":4900,"currency":"USD","description":"café "}"#, "description"),
            (r#"{"amountCents":4900,"currency":"USD","description":""}"#, "description"),
            (r#"{"amountCents":4900,"currency":"USD"}"#, "description"),
            (r#"{"amountCents":7}"#, "amountCents, currency, description"),
        ] {
            let conflict = app.send(&charge_as(key, body)).await;
            let problem = conflict.assert_problem(422, "idempotency-key-reused");
            assert_eq!(problem["detail"], format!("these members differ: {members}"), "{body}");
            assert!(!problem.to_string().contains("4900") && !problem.to_string().contains("caf"));
        }
        assert_eq!(app.rows().await, [1, 1, 1]);
        assert_eq!((app.outcomes("created"), app.outcomes("payload_conflict")), (1.0, 8.0));
    }

    async fn composed_and_decomposed_text_are_two_payloads(app: &TestApp) {
        let key = Uuid::new_v4();
        app.send(&charge_as(key, "{\"amountCents\":1,\"description\":\"caf\u{e9}\"}")).await;
        let decomposed = "{\"amountCents\":1,\"description\":\"cafe\u{301}\"}";
        let conflict = app.send(&charge_as(key, decomposed)).await;
        conflict.assert_problem(422, "idempotency-key-reused");
    }

    async fn every_outcome_is_a_series_before_it_happens(app: &TestApp) {
        for outcome in OUTCOMES {
            assert_eq!(app.outcomes(outcome), 0.0);
        }
    }
}
