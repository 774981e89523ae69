//! Connections to the database that are few, refused, or meet a table that has changed.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::{TestApp, eventually};
use crate::contracts;
use crate::request::{charge, charge_as, get};

const BODY: &str = r#"{"amountCents":4900}"#;

/// One connection for reads, and short patience.
const NARROW: &[(&str, &str)] = &[
    ("ONCEBOX_DATABASE_POOL_MAX", "1"),
    ("ONCEBOX_DATABASE_CONNECT_TIMEOUT", "300ms"),
    ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
    ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"),
    ("ONCEBOX_HTTP_DEADLINE", "600ms"),
    ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "0s"),
];

contracts! {
    with NARROW;
    async fn who_gets_no_connection_is_told_within_the_deadline(app: &TestApp) {
        let created = app.send(&charge(BODY)).await;
        let location = created.assert_created().header("location").unwrap();
        let operator = app.client().await;
        operator.batch_execute("BEGIN; LOCK TABLE charges IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let mut connections = Vec::new();
        for _ in 0..20 {
            let mut connection = app.connect().await;
            connection.send(&get(location).bytes()).await;
            connections.push(connection);
        }
        for connection in &mut connections {
            let answer = connection.response().await;
            answer.assert_problem(503, "unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        operator.batch_execute("ROLLBACK").await.unwrap();
        let mut again = app.send(&get(location)).await;
        while again.status == 503 {
            again = app.send(&get(location)).await;
        }
        assert_eq!(again.body, created.body);
    }

    // SQLSTATE 0A000 (pgbouncer#1038 and others): "cached plan must not change result type".
    async fn a_migration_under_a_running_process_is_not_noticed(app: &TestApp) {
        let (key, first) = (Uuid::new_v4(), app.send(&charge(BODY)).await);
        let location = first.assert_created().header("location").unwrap();
        let held = app.send(&charge_as(key, BODY)).await;
        held.assert_created();
        for kind in ["varchar(500)", "text"] {
            let alter = format!(
                "ALTER TABLE idempotency_keys
                     ALTER COLUMN response_content_type TYPE {kind} COLLATE \"C\";
                 ALTER TABLE charges ALTER COLUMN currency TYPE {kind} COLLATE \"C\""
            );
            app.client().await.batch_execute(&alter).await.unwrap();
            app.send(&charge_as(key, BODY)).await.assert_replay_of(&held);
            app.send(&charge(BODY)).await.assert_created();
            assert_eq!(app.send(&get(location)).await.body, first.body);
        }
    }
}

/// The server itself has no more connections for this login: SQLSTATE 53300.
#[tokio::test]
async fn a_server_without_a_free_connection_is_503_for_whom_it_refuses_alone() {
    let database = Arc::new(pg_test::database().await);
    let operator = database.client().await;
    let role = format!("{}_api", database.name());
    let make = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'secret' CONNECTION LIMIT 1; GRANT oncebox_api TO {role}"
    );
    operator.batch_execute(&make).await.unwrap();
    let url = database.url();
    let (_, place) = url.split_once('@').unwrap();
    let narrow = format!("postgres://{role}:secret@{place}");
    let settings = [
        ("DATABASE_URL", narrow.as_str()),
        // Not of the same login.
        ("ONCEBOX_JOBS_DATABASE_URL", &url),
        ("ONCEBOX_HTTP_DEADLINE", "2s"),
        ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "0s"),
    ];
    let app = TestApp::on(Arc::clone(&database), &settings).await;

    // Whoever has the one connection keeps it: the committer, or the pool of the reads.
    let read = get(&format!("/charges/{}", Uuid::new_v4()));
    let refused = eventually("a refusal", async || {
        let answers = [app.send(&charge(BODY)).await, app.send(&read).await];
        answers.into_iter().find(|answer| answer.status == 503)
    });
    refused.await.assert_problem(503, "unavailable");
    operator.batch_execute(&format!("ALTER ROLE {role} CONNECTION LIMIT -1")).await.unwrap();
    let created = eventually("a charge", async || {
        let answer = app.send(&charge(BODY)).await;
        (answer.status == 201).then_some(answer)
    });
    created.await.assert_created();
    app.stop().await;
    operator.batch_execute(&format!("DROP ROLE {role}")).await.unwrap();
}
