//! GET /openapi.json, and the index of the problems it speaks of.

use serde_json::Value;

use crate::contracts;
use crate::request::{Request, get};

contracts! {
    with &[("ONCEBOX_AUTH", "api_keys")];
    async fn the_description_and_every_page_it_names_are_open_to_all(app: &TestApp) {
        let served = app.send(&get("/openapi.json")).await;
        assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
        assert_eq!(served.body, include_bytes!("../../../../docs/openapi.json"));
        let index = app.send(&get("/problems")).await;
        let index = String::from_utf8(index.body).unwrap();
        let kinds = &served.json()["paths"]["/problems/{name}"]["get"]["parameters"][0]["schema"]["enum"];
        let kinds: Vec<&str> = kinds.as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
        assert_eq!(index.lines().count(), kinds.len());
        for kind in kinds {
            let page = format!("/problems/{kind}");
            assert!(index.lines().any(|line| line.split(' ').next() == Some(page.as_str())), "{page}");
            assert_eq!(app.send(&get(&page)).await.status, 200, "{page}");
        }
    }

    async fn a_described_operation_is_served_and_another_method_is_not(app: &TestApp) {
        let document = app.send(&get("/openapi.json")).await.json();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let target = path.replace("{id}", "1").replace("{name}", "invalid-body");
            for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
                let described = operations[method.to_lowercase()] != Value::Null;
                let status = app.send(&Request::new(method, &target)).await.status;
                assert_eq!(status != 405, described, "{method} {target}");
            }
        }
    }

    with &[("ONCEBOX_AUTH", "api_keys")];
    async fn swagger_ui_comes_whole_from_the_binary_and_loads_nothing_from_elsewhere(app: &TestApp) {
        let moved = app.send(&get("/docs")).await;
        assert_eq!((moved.status, moved.header("location")), (308, Some("/docs/")));
        let page = app.send(&get("/docs/")).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        let page = String::from_utf8(page.body).unwrap();
        let named = page.split(['"', '\'']).filter(|text| text.ends_with(".js") || text.ends_with(".css"));
        let files: Vec<&str> = named.map(|file| file.trim_start_matches("./")).collect();
        assert!(files.contains(&"swagger-ui-bundle.js"), "{files:?}");
        for file in files {
            let served = app.send(&get(&format!("/docs/{file}"))).await;
            assert!(served.status == 200 && !served.body.is_empty(), "{file}");
        }
        let start = app.send(&get("/docs/swagger-initializer.js")).await;
        assert!(String::from_utf8(start.body).unwrap().contains("/openapi.json"));
        app.send(&get("/docs/no-such-file")).await.assert_problem(404, "not-found");
        app.send(&get("/docs/../charges")).await.assert_problem(404, "not-found");
    }
}
