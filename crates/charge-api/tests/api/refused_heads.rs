//! Heads that are not those of HTTP/1.1, or not in one way only: refused, and the connection closed.

use crate::contracts;
use crate::request::{Request, charge, get};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

/// Sends the charge with these lines in place of its framing.
fn framed(lines: &str) -> Vec<u8> {
    let head = charge(BODY).without("Content-Length").head();
    let head = String::from_utf8(head).unwrap();
    format!("{}{lines}\r\n\r\n{BODY}", head.trim_end_matches("\r\n").to_owned() + "\r\n")
        .into_bytes()
}

contracts! {
    async fn a_length_that_is_not_one_number_is_refused(app: &TestApp) {
        let length = BODY.len();
        for lines in [
            &format!("Content-Length: {length}\r\nContent-Length: {length}"),
            &format!("Content-Length: {length}\r\nContent-Length: 1"),
            &format!("Content-Length: {length},{length}"),
            &format!("Content-Length: {length}, {length}"),
            &format!("Content-Length: +{length}"),
            &format!("Content-Length: -{length}"),
            &format!("Content-Length: 0x{length:x}"),
            &format!("Content-Length: {length} {length}"),
            &format!("Content-Length: \"{length}\""),
            &format!("Content-Length: {length}.0"),
            &format!("Content-Length : {length}"),
            "Content-Length:",
            "Content-Length: canary",
            "Content-Length: 18446744073709551616",
            "Content-Length: 99999999999999999999999999",
        ] {
            app.send_last(&framed(lines)).await.assert_problem(400, "malformed-request");
        }
        for lines in ["Content-Length: 18446744073709551615", "Content-Length: 9223372036854775808"] {
            app.send_last(&framed(lines)).await.assert_problem(413, "body-too-large");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_coding_that_is_not_chunked_alone_is_refused(app: &TestApp) {
        for lines in [
            "Content-Length: 43\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 43",
            "Transfer-Encoding: gzip",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked, gzip",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \"chunked\"",
            "Transfer-Encoding: identity",
            "Transfer-Encoding:",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding\t: chunked",
            "Transfer-Encoding: \x0bchunked",
            "Transfer-Encoding: canary",
        ] {
            app.send_last(&framed(lines)).await.assert_problem(400, "malformed-request");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_host_that_is_not_one_is_refused(app: &TestApp) {
        let without = charge(BODY).without("Host");
        app.send_last(&without.bytes()).await.assert_problem(400, "malformed-request");
        let twice = charge(BODY).with("Host", "test");
        app.send_last(&twice.bytes()).await.assert_problem(400, "malformed-request");
        for host in [
            "", "a b", "canary@test", "a/b", "test:canary", "test:65536", "test:80:80", "test:+80",
            "[::1", "http://test",
        ] {
            let wrong = without.clone().with("Host", host);
            app.send_last(&wrong.bytes()).await.assert_problem(400, "malformed-request");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_line_that_ends_or_folds_otherwise_is_refused(app: &TestApp) {
        let bytes = String::from_utf8(charge(BODY).bytes()).unwrap();
        let first = bytes.replacen("\r\n", "\n", 1);
        let all = bytes.replace("\r\n", "\n");
        let last = bytes.replacen("\r\n\r\n", "\r\n\n", 1);
        for malformed in [first, all, last] {
            let answer = app.send_last(malformed.as_bytes()).await;
            answer.assert_problem(400, "malformed-request");
        }
        for line in [
            "X: 1\r\n folded: canary", "X: 1\r\n\tfolded", " X: 1", "X: a\0b", "X: a\rb", "X\0: 1",
            "X canary: 1", "X : 1", ": 1", "canary", "X(: 1", "é: 1", "X: \x7f", "X: \x01",
        ] {
            app.send_last(&framed(line)).await.assert_problem(400, "malformed-request");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn what_is_no_request_line_of_http_1_is_refused_at_once(app: &TestApp) {
        for start in [
            &b"GET /\r\n"[..], b"GET / HTTP/0.9\r\n", b"POST /charges HTTP/1.2\r\n",
            b"POST /charges HTTP/2.0\r\n", b"POST /charges HTTP/11\r\n", b"POST /charges\r\n",
            b"POST /charges http/1.1\r\n", b"POST  /charges HTTP/1.1\r\n",
            b"POST /charges canary HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"\0", b"\xff\xfb\x01", b" GET / HTTP/1.1\r\n",
            b"{\"amountCents\":4900}", b"\n\n",
        ] {
            app.send_last(start).await.assert_problem(400, "malformed-request");
        }
        for target in [
            "charges", "*", "/charges#canary", "/charges\x01", "test:80", "ftp://test/charges",
            "http://canary:word@test/charges", "http:///charges", "http://test:canary/charges",
        ] {
            let line = format!("POST {target} HTTP/1.1");
            let answer = app.send_last(&charge(BODY).line(&line).bytes()).await;
            answer.assert_problem(400, "malformed-request");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    // Its parser would refuse them with an answer of its own.
    async fn a_method_that_the_server_behind_does_not_know_is_refused(app: &TestApp) {
        for method in ["P'ST", "#", "$", "%", "&", "POST%"] {
            let line = format!("{method} /charges HTTP/1.1");
            let answer = app.send_last(&charge(BODY).line(&line).bytes()).await;
            answer.assert_problem(400, "malformed-request");
        }
        let long = charge(BODY).line(&format!("{} /charges HTTP/1.1", "A".repeat(5000)));
        app.send(&long).await.assert_problem(405, "method-not-allowed");
    }

    async fn an_answer_to_head_has_no_body_also_when_it_is_a_refusal(app: &TestApp) {
        let head = |target: &str| get(target).line(&format!("HEAD {target} HTTP/1.1"));
        for request in [
            head("/charges/1").without("Host"),
            head("/canary").with("Connection", "close"),
            head("/charges?canary").with("Connection", "close"),
        ] {
            let mut connection = app.connect().await;
            connection.send(&request.bytes()).await;
            let answer = connection.response_to_head().await;
            assert!((400..500).contains(&answer.status), "{answer:?}");
            connection.closed().await;
        }
    }

    async fn http_1_0_needs_a_length_and_is_then_served(app: &TestApp) {
        let line = "POST /charges HTTP/1.0";
        let without = charge(BODY).line(line).without("Content-Length");
        app.send_last(&without.bytes()).await.assert_problem(400, "malformed-request");
        let chunked = charge(BODY).line(line).chunked(10);
        app.send_last(&chunked.bytes()).await.assert_problem(400, "malformed-request");
        assert_eq!(app.rows().await, [0, 0, 0]);
        app.send_last(&charge(BODY).line(line).bytes()).await.assert_created();
    }

    async fn a_head_over_the_limits_is_told_by_what_is_too_large(app: &TestApp) {
        let long = format!("POST /charges?{} HTTP/1.1", "a".repeat(70_000));
        let answer = app.send_last(&charge(BODY).line(&long).bytes()).await;
        answer.assert_problem(414, "target-too-long");
        let endless = format!("POST /{}", "a".repeat(200_000));
        app.send_last(endless.as_bytes()).await.assert_problem(414, "target-too-long");
        let header = charge(BODY).with("X", &"a".repeat(70_000));
        app.send_last(&header.bytes()).await.assert_problem(431, "head-too-large");
        let name = charge(BODY).with(&"a".repeat(70_000), "1");
        app.send_last(&name.bytes()).await.assert_problem(431, "head-too-large");
        let headers = |count| (0..count).fold(get("/charges/1"), |request: Request, n| {
            request.with(&format!("X-{n}"), "1")
        });
        // One of them is Host.
        app.send(&headers(95)).await.assert_problem(404, "not-found");
        app.send_last(&headers(96).bytes()).await.assert_problem(431, "head-too-large");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn a_wish_for_another_protocol_is_ignored(app: &TestApp) {
        let mut connection = app.connect().await;
        for (upgrade, options) in [
            ("h2c", "Upgrade, HTTP2-Settings"), ("websocket", "keep-alive, Upgrade"), ("websocket", "upgrade"),
        ] {
            let wish = charge(BODY).with("Upgrade", upgrade).with("Connection", options);
            connection.send(&wish.with("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA").bytes()).await;
            let answer = connection.response().await;
            assert_eq!(answer.assert_created().header("connection"), None);
        }
        assert_eq!(app.rows().await, [3, 3, 3]);
    }
}
