//! Where one request ends and the next begins: what stands in between is never executed.

use uuid::Uuid;

use crate::contracts;
use crate::raw::Raw;
use crate::request::{charge, charge_as, get, post};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

contracts! {
    async fn what_follows_a_length_that_is_too_short_is_never_executed(app: &TestApp) {
        let hidden = charge(BODY).bytes();
        for cut in [1, 10, BODY.len() - 1] {
            let short = charge(BODY).without("Content-Length").with("Content-Length", &cut.to_string());
            app.send_last(&short.bytes()).await.assert_problem(400, "invalid-body");
            let smuggled = [&short.bytes()[..], &hidden].concat();
            app.send_last(&smuggled).await.assert_problem(400, "invalid-body");
            // The rest is a request by itself.
            let exact = [short.raw_body(&BODY[..cut]).bytes(), hidden.clone()].concat();
            app.send_last(&exact).await.assert_problem(400, "invalid-body");
        }
        let none = charge(BODY).without("Content-Length");
        app.send_last(&none.bytes()).await.assert_problem(400, "invalid-body");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn what_follows_a_malformed_chunk_is_never_executed(app: &TestApp) {
        let hidden = charge(BODY).bytes();
        let size = format!("{:x}", BODY.len());
        for body in [
            format!("g\r\n{BODY}\r\n0\r\n\r\n"),
            format!("\r\n{BODY}\r\n0\r\n\r\n"),
            format!("-{size}\r\n{BODY}\r\n0\r\n\r\n"),
            format!("+{size}\r\n{BODY}\r\n0\r\n\r\n"),
            format!("0x{size}\r\n{BODY}\r\n0\r\n\r\n"),
            format!(" {size}\r\n{BODY}\r\n0\r\n\r\n"),
            format!("{size} \r\n{BODY}\r\n0\r\n\r\n"),
            format!("{size};canary=1\r\n{BODY}\r\n0\r\n\r\n"),
            format!("{size}\r\n{BODY}\r\n0;canary\r\n\r\n"),
            format!("{size};a=\"\r\n\"\r\n{BODY}\r\n0\r\n\r\n"),
            format!("{size}\n{BODY}\r\n0\r\n\r\n"),
            format!("{size}\r{BODY}\r\n0\r\n\r\n"),
            format!("{size}\r\n{BODY}0\r\n\r\n"),
            format!("{size}\r\n{BODY}\n0\r\n\r\n"),
            format!("1\r\n{BODY}\r\n0\r\n\r\n"),
            format!("{size}\r\n{BODY}\r\n0\n\n"),
            format!("{size}\r\n{BODY}\r\n0\r\nCanary: 1\r\n\r\n"),
            format!("10000000000000000{size}\r\n{BODY}\r\n0\r\n\r\n"),
            format!("ffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n"),
        ] {
            let chunked = charge(BODY).chunked(99).raw_body(&body);
            let bytes = [&chunked.bytes()[..], &hidden].concat();
            let answer = app.send_last(&bytes).await;
            answer.assert_problem(400, "body-incomplete");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_chunked_body_is_the_same_body(app: &TestApp) {
        let key = Uuid::new_v4();
        let first = app.send(&charge_as(key, BODY)).await;
        first.assert_created();
        for size in [1, 7, 1000] {
            app.send(&charge_as(key, BODY).chunked(size)).await.assert_replay_of(&first);
        }
    }

    async fn a_request_behind_one_that_closes_the_connection_is_never_executed(app: &TestApp) {
        let hidden = charge(BODY).bytes();
        for (last, status) in [
            (charge(BODY).with("Connection", "close").bytes(), 201),
            (charge(BODY).with("Connection", "keep-alive, Close").bytes(), 201),
            (charge(BODY).line("POST /charges HTTP/1.0").bytes(), 201),
            (charge("x").bytes(), 400),
            (post("x".repeat(20_000)).bytes(), 413),
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 400),
        ] {
            let before = app.rows().await[1];
            let mut connection = app.connect().await;
            connection.send(&[last, hidden.clone(), hidden.clone()].concat()).await;
            assert_eq!(connection.response().await.status, status);
            connection.closed().await;
            assert_eq!(app.rows().await[1], before + i64::from(status == 201));
        }
    }

    async fn pipelined_requests_are_answered_in_order(app: &TestApp) {
        let mut connection = app.connect().await;
        let keys: Vec<_> = (0..40).map(|_| Uuid::new_v4()).collect();
        let requests: Vec<_> = keys.iter().map(|key| charge_as(*key, BODY).bytes()).collect();
        let mut bytes = requests.concat();
        bytes.extend(b"\r\n");
        bytes.extend(get("/canary").bytes());
        connection.send(&bytes).await;
        for key in keys {
            let answer = connection.response().await;
            let key = key.to_string();
            assert_eq!(answer.assert_created().header("idempotency-key"), Some(key.as_str()));
        }
        connection.response().await.assert_problem(404, "not-found");
    }

    async fn a_request_may_arrive_in_any_pieces(app: &TestApp) {
        let mut connection = app.connect().await;
        for request in [charge(BODY), charge(BODY).chunked(3)] {
            for byte in request.bytes() {
                connection.send(&[byte]).await;
            }
            connection.response().await.assert_created();
        }
        assert_eq!(app.rows().await, [2, 2, 2]);
    }

    async fn a_client_that_asks_whether_to_go_on_is_told_to(app: &TestApp) {
        let mut connection = app.connect().await;
        let request = charge(BODY).with("Expect", "100-continue");
        connection.send(&request.head()).await;
        assert_eq!(connection.response().await.status, 100);
        connection.send(BODY.as_bytes()).await;
        connection.response().await.assert_created();
        // One that does not wait for the answer is served as well.
        connection.send(&charge(BODY).with("Expect", "100-Continue").bytes()).await;
        assert_eq!(connection.response().await.status, 100);
        connection.response().await.assert_created();
    }

    async fn a_body_nobody_reads_does_not_become_a_request(app: &TestApp) {
        let hidden = charge(BODY).bytes();
        for (reader, status) in [
            (charge("").line("POST /canary HTTP/1.1"), 404),
            (charge("").line("PUT /charges HTTP/1.1"), 405),
            (charge("").line("GET /charges HTTP/1.1"), 200),
            (charge("").without("Content-Type"), 415),
        ] {
            let length = hidden.len().to_string();
            let with_length = reader.clone().without("Content-Length").with("Content-Length", &length);
            let chunked = reader.raw_body(&hidden).chunked(9999);
            for request in [with_length.raw_body(&hidden), chunked] {
                let mut connection: Raw = app.connect().await;
                connection.send(&request.head()).await;
                assert_eq!(connection.response().await.status, status);
                connection.send(&request.bytes()[request.head().len()..]).await;
                connection.closed().await;
            }
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }
}
