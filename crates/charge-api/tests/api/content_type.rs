//! What a body must be before anybody reads it: JSON, in UTF-8, as it is.

use crate::contracts;
use crate::request::{Request, charge};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

fn with_type(value: &str) -> Request {
    charge(BODY).without("Content-Type").with("Content-Type", value)
}

contracts! {
    async fn json_in_utf_8_is_accepted_however_it_is_spelt(app: &TestApp) {
        for value in [
            "application/json",
            "Application/JSON",
            "application/json;charset=utf-8",
            "application/json; charset=UTF-8",
            "application/json ; charset=\"utf-8\"",
            "application/json;",
            "application/json; profile=\"a\"",
        ] {
            app.send(&with_type(value)).await.assert_created();
        }
    }

    async fn every_other_type_is_refused(app: &TestApp) {
        for value in [
            "",
            "text/plain",
            "text/json",
            "application/vnd.api+json",
            "application/problem+json",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=a",
            "application/json; charset=iso-8859-1",
            "application/json; charset=utf-16",
            "application/json; charset=",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json, text/plain",
            "application/json application/json",
            "application/jsonp",
            "application",
            "*/*",
            "canary",
        ] {
            let refused = app.send(&with_type(value)).await;
            refused.assert_problem(415, "unsupported-media-type");
        }
        let none = charge(BODY).without("Content-Type");
        app.send(&none).await.assert_problem(415, "unsupported-media-type");
        let latin_1 = charge(BODY).without("Content-Type").with_bytes("Content-Type", b"\xe9");
        app.send(&latin_1).await.assert_problem(415, "unsupported-media-type");
        let twice = with_type("application/json").with("Content-Type", "application/json");
        app.send(&twice).await.assert_problem(415, "unsupported-media-type");
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn an_encoded_body_is_refused_before_it_is_read(app: &TestApp) {
        // The head of a gzip stream that claims twenty megabytes; nothing unpacks it.
        let bomb = [&b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"[..], &[0; 8000]].concat();
        for coding in ["gzip", "br", "deflate", "zstd", "canary", "gzip, gzip", "identity", ""] {
            let encoded = charge(BODY).without("Content-Length").raw_body(&bomb);
            let encoded = encoded.with("Content-Length", &bomb.len().to_string());
            let refused = app.send(&encoded.with("Content-Encoding", coding)).await;
            refused.assert_problem(415, "unsupported-media-type");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }
}
