//! Limits of size, time and number.

use std::time::Duration;

use crate::contracts;
use crate::request::{Request, charge, get};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

/// As short as the settings allow.
const HASTY: &[(&str, &str)] = &[
    ("ONCEBOX_HTTP_HEAD_TIMEOUT", "100ms"),
    ("ONCEBOX_HTTP_BODY_TIMEOUT", "100ms"),
    ("ONCEBOX_HTTP_KEEP_ALIVE", "100ms"),
    ("ONCEBOX_HTTP_SEND_TIMEOUT", "100ms"),
];

fn padded(length: usize) -> String {
    format!("{BODY}{}", " ".repeat(length - BODY.len()))
}

contracts! {
    async fn a_body_over_the_limit_is_refused_by_its_length_and_while_it_arrives(app: &TestApp) {
        const LIMIT: usize = 16 * 1024;
        app.send(&charge(&padded(LIMIT))).await.assert_created();
        app.send(&charge(&padded(LIMIT)).chunked(1000)).await.assert_created();
        let over = charge(&padded(LIMIT + 1));
        let problem = app.send(&over).await.assert_problem(413, "body-too-large");
        assert_eq!(problem["detail"], "the limit is 16384 bytes");
        app.send(&over.clone().chunked(1000)).await.assert_problem(413, "body-too-large");
        // Told by the length alone: the body never comes.
        let announced = charge("").without("Content-Length").with("Content-Length", "100000000");
        app.send_last(&announced.head()).await.assert_problem(413, "body-too-large");
        // A chunk of its own is over the limit, of which no byte has come.
        let mut endless = charge(&padded(LIMIT)).chunked(1000).bytes();
        endless.truncate(endless.len() - 5);
        endless.extend(b"7fffffff\r\nx");
        app.send_last(&endless).await.assert_problem(413, "body-too-large");
        assert_eq!(app.rows().await, [2, 2, 2]);
    }

    async fn a_hundred_megabytes_of_blanks_are_not_waited_for(app: &TestApp) {
        const BLANKS: usize = 100_000_000;
        let head = charge("").without("Content-Length");
        for request in [
            head.clone().with("Content-Length", &BLANKS.to_string()),
            head.with("Transfer-Encoding", "chunked").raw_body("5f5e100\r\n"),
        ] {
            let mut connection = app.connect().await;
            connection.send(&request.bytes()).await;
            // The server closes long before the end, and then no more can be sent.
            connection.send(&vec![b' '; BLANKS]).await;
            let mut another = app.connect().await;
            another.send(&charge(BODY).bytes()).await;
            another.response().await.assert_created();
        }
        assert_eq!(app.rows().await, [2, 2, 2]);
    }

    with HASTY;
    async fn blank_lines_without_an_end_are_no_request(app: &TestApp) {
        let mut connection = app.connect().await;
        // The write ends when the server has closed.
        for _ in 0..10_000 {
            connection.send(&b"\r\n".repeat(10_000)).await;
            if connection.is_closed().await {
                return;
            }
        }
        panic!("two hundred megabytes of blank lines were taken");
    }

    with &[("ONCEBOX_HTTP_BODY_MAX", "1KiB"), ("ONCEBOX_CHARGES_AMOUNT_MAX", "100")];
    async fn the_limits_are_what_the_settings_say(app: &TestApp) {
        app.send(&charge(&padded(1025))).await.assert_problem(413, "body-too-large");
        app.send(&charge(r#"{"amountCents":101}"#)).await.assert_problem(400, "invalid-body");
        app.send(&charge(r#"{"amountCents":100}"#)).await.assert_created();
    }

    with HASTY;
    async fn a_slow_head_is_408(app: &TestApp) {
        app.send_last(b"P").await.assert_problem(408, "head-timeout");
        let head = charge(BODY).head();
        app.send_last(&head[..head.len() - 2]).await.assert_problem(408, "head-timeout");
        // Also of a later request on its connection.
        let mut connection = app.connect().await;
        connection.send(&[&get("/canary").bytes()[..], b"POST /charges"].concat()).await;
        connection.response().await.assert_problem(404, "not-found");
        connection.response().await.assert_problem(408, "head-timeout");
        connection.closed().await;
    }

    with HASTY;
    async fn a_slow_body_is_408(app: &TestApp) {
        let request = charge(BODY).bytes();
        app.send_last(&request[..request.len() - 1]).await.assert_problem(408, "body-timeout");
        let chunked = charge(BODY).chunked(10).bytes();
        app.send_last(&chunked[..chunked.len() - 1]).await.assert_problem(408, "body-timeout");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    with HASTY;
    async fn a_connection_on_which_nothing_is_asked_is_closed_without_a_word(app: &TestApp) {
        app.connect().await.closed().await;
        let mut connection = app.connect().await;
        connection.send(&charge(BODY).bytes()).await;
        connection.response().await.assert_created();
        connection.closed().await;
    }

    with &[("ONCEBOX_HTTP_CONNECTIONS_MAX", "2"), ("ONCEBOX_HTTP_WORKERS", "2")];
    async fn a_connection_over_the_limit_is_served_when_another_ends(app: &TestApp) {
        for _ in 0..10 {
            let (mut one, mut two) = (app.connect().await, app.connect().await);
            one.send(&charge(BODY).bytes()).await;
            two.send(&charge(BODY).bytes()).await;
            let mut third = app.connect().await;
            third.send(&charge(BODY).bytes()).await;
            one.response().await.assert_created();
            two.response().await.assert_created();
            drop(one);
            third.response().await.assert_created();
        }
    }

    with HASTY;
    async fn a_client_that_takes_no_answers_is_given_up(app: &TestApp) {
        // More answers than the buffers of two sockets hold. The write ends when the server closes.
        let mut connection = app.connect().await;
        let pages = get("/problems/unavailable").bytes().repeat(1000);
        for _ in 0..100 {
            connection.send(&pages).await;
        }
        let mut another = app.connect().await;
        another.send(&charge(BODY).bytes()).await;
        another.response().await.assert_created();
    }

    async fn a_kept_connection_serves_many_requests(app: &TestApp) {
        let mut connection = app.connect().await;
        for n in 1..=50 {
            let request: Request = charge(&format!("{{\"amountCents\":{n}}}"));
            connection.send(&request.bytes()).await;
            assert_eq!(connection.response().await.assert_created().json()["amountCents"], n);
        }
    }
}

#[test]
fn a_wait_that_is_longer_than_the_deadline_is_no_setting() {
    let env = [
        ("DATABASE_URL", "postgres://a@b/c"),
        ("ONCEBOX_AUTH", "disabled"),
        ("ONCEBOX_HTTP_DEADLINE", "5s"),
    ];
    let problems = settings::load::<charge_api::Settings>(None, &env).err().unwrap();
    assert!(problems.to_string().contains("idempotency.wait_max"), "{problems}");
    let fits = [&env[..], &[("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "4s")]].concat();
    let settings = settings::load::<charge_api::Settings>(None, &fits).unwrap();
    assert_eq!(settings.idempotency.wait_max, Duration::from_secs(4));
}
