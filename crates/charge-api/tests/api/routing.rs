//! Which methods and paths there are.

use uuid::Uuid;

use crate::contracts;
use crate::request::{Request, charge, get};

const BODY: &str = r#"{"amountCents":4900,"description":"canary"}"#;

contracts! {
    async fn another_method_is_405_and_told_which_are_allowed(app: &TestApp) {
        for method in ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "post", "POSt", "CANARY", "M-SEARCH"] {
            for (target, allow) in [("/charges", "GET, HEAD, POST"), ("/charges/1", "GET, HEAD"), ("/problems", "GET, HEAD"), ("/problems/x", "GET, HEAD")] {
                let refused = app.send(&Request::new(method, target)).await;
                refused.assert_problem(405, "method-not-allowed");
                assert_eq!(refused.header("allow"), Some(allow), "{method} {target}");
            }
        }
        let with_body = charge(BODY).line("PUT /charges HTTP/1.1");
        app.send(&with_body).await.assert_problem(405, "method-not-allowed");
        app.send_last(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n").await;
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn another_path_is_404_before_anything_else_is_looked_at(app: &TestApp) {
        let id = Uuid::new_v4();
        for target in [
            "/", "/charges/", "//charges", "/charges//", "/charge", "/CHARGES", "/charges%2F",
            "/charges/../charges", "/./charges", "/charges;a=1", "/canary", "/metrics",
            "/charges/1/2", "/%00", "/%ff", "/%", "/%zz",
        ] {
            let refused = app.send(&charge(BODY).line(&format!("POST {target} HTTP/1.1"))).await;
            refused.assert_problem(404, "not-found");
            let nothing = Request::new("POST", target).with("Content-Type", "text/plain");
            app.send(&nothing).await.assert_problem(404, "not-found");
        }
        for target in [
            "/charges/canary".to_owned(), format!("/charges/{id}"), format!("/charges/{id}/"),
            "/problems/canary".to_owned(), "/problems/".to_owned(),
        ] {
            app.send(&get(&target)).await.assert_problem(404, "not-found");
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
    }

    async fn one_resource_may_be_named_in_every_form_of_a_target(app: &TestApp) {
        for target in ["/charges", "http://test/charges", "/charges?a=1&a=%00", "/%63harges"] {
            app.send(&charge(BODY).line(&format!("POST {target} HTTP/1.1"))).await.assert_created();
        }
    }

    async fn what_the_type_of_a_problem_leads_to_is_a_page(app: &TestApp) {
        let refused = app.send(&charge("{}")).await.assert_problem(400, "invalid-body");
        let page = app.send(&get(refused["type"].as_str().unwrap())).await;
        assert_eq!(page.status, 200);
        assert!(String::from_utf8(page.body).unwrap().contains("Status: 400"));
    }
}
