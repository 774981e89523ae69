//! GET /charges/{id}.

use uuid::Uuid;

use crate::contracts;
use crate::request::{charge, get};

const BODY: &str = r#"{"amountCents":4900,"currency":"USD","description":"café"}"#;

contracts! {
    async fn a_charge_is_read_where_its_location_points(app: &TestApp) {
        let created = app.send(&charge(BODY)).await;
        let location = created.assert_created().header("location").unwrap();
        let read = app.send(&get(location)).await;
        assert_eq!((read.status, read.header("content-type")), (200, Some("application/json")));
        assert_eq!(read.json(), created.json());
        let upper = location.replace("/charges/", "").to_uppercase();
        assert_eq!(app.send(&get(&format!("/charges/{upper}"))).await.json(), created.json());
    }

    async fn head_is_get_without_the_body(app: &TestApp) {
        let created = app.send(&charge(BODY)).await;
        let location = created.header("location").unwrap();
        let mut connection = app.connect().await;
        let head = get(location).line(&format!("HEAD {location} HTTP/1.1"));
        connection.send(&head.bytes()).await;
        let answer = connection.response_to_head().await;
        assert_eq!(answer.status, 200);
        let length = created.body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(length.as_str()));
        // And the connection is in step.
        connection.send(&get(location).bytes()).await;
        assert_eq!(connection.response().await.json(), created.json());
    }

    async fn an_id_has_one_spelling(app: &TestApp) {
        let created = app.send(&charge(BODY)).await;
        let id: Uuid = created.json()["id"].as_str().unwrap().parse().unwrap();
        for spelling in [
            id.simple().to_string(),
            id.braced().to_string(),
            id.urn().to_string(),
            format!("%7B{id}%7D"),
            format!("{id}%00"),
            format!("{id}%20"),
            format!("'{id}'"),
            format!("{id}'%20OR%20'1'='1"),
            "00000000-0000-0000-0000-000000000000".into(),
        ] {
            let missing = app.send(&get(&format!("/charges/{spelling}"))).await;
            missing.assert_problem(404, "not-found");
        }
    }
}
