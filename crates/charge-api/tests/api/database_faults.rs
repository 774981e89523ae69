//! A database that is away, slow, or says no: the client hears 503 and may send its key again.

use tokio::net::TcpListener;
use uuid::Uuid;

use crate::app::{TestApp, eventually, rows};
use crate::contracts;
use crate::hold::{HELD, Hold};
use crate::proxy::Proxy;
use crate::raw::Response;
use crate::request::{charge, charge_as, get};

const BODY: &str = r#"{"amountCents":4900}"#;

/// Short enough that a test may wait it out.
const HASTY: &[(&str, &str)] = &[
    ("ONCEBOX_HTTP_DEADLINE", "500ms"),
    ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "0s"),
    ("ONCEBOX_DATABASE_CONNECT_TIMEOUT", "300ms"),
];

#[track_caller]
fn assert_unavailable(answer: &Response) {
    let problem = answer.assert_problem(503, "unavailable");
    assert_eq!((&problem["retryable"], answer.header("retry-after")), (&true.into(), Some("1")));
}

async fn created_again(app: &TestApp, key: Uuid) {
    let answer = eventually("the charge is created", async || {
        let answer = app.send(&charge_as(key, BODY)).await;
        (answer.status == 201).then_some(answer)
    });
    answer.await.assert_created();
}

contracts! {
    with HASTY;
    async fn a_database_that_is_away_is_503_and_nothing_is_stored(app: &TestApp) {
        let server = app.database.client().await;
        let name = app.database.name();
        let elsewhere = pg_test::empty_database().await;
        let operator = elsewhere.client().await;
        app.send(&charge(BODY)).await.assert_created();
        drop(server);
        let away = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
        operator.batch_execute(&away).await.unwrap();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
        operator.execute(end, &[&name]).await.unwrap();

        let key = Uuid::new_v4();
        for _ in 0..5 {
            assert_unavailable(&app.send(&charge_as(key, BODY)).await);
        }
        assert_unavailable(&app.send(&get(&format!("/charges/{key}"))).await);
        app.send(&charge("{}")).await.assert_problem(400, "invalid-body");

        let back = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
        operator.batch_execute(&back).await.unwrap();
        assert_eq!(app.rows().await, [1, 1, 1]);
        created_again(app, key).await;
        assert_eq!(app.rows().await, [2, 2, 2]);
    }

    async fn when_all_backends_are_terminated_each_charge_is_made_once(app: &TestApp) {
        let operator = app.client().await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let mut keys = Vec::new();
        for round in 0..20 {
            let mut connections = Vec::new();
            for _ in 0..10 {
                let (key, mut connection) = (Uuid::new_v4(), app.connect().await);
                connection.send(&charge_as(key, BODY).bytes()).await;
                connections.push(connection);
                keys.push(key);
            }
            if round % 2 == 0 {
                operator.execute(end, &[]).await.unwrap();
            }
            for connection in &mut connections {
                let answer = connection.response().await;
                assert!(matches!(answer.status, 201 | 503), "{answer:?}");
            }
        }
        let count = i64::try_from(keys.len()).unwrap();
        for key in keys {
            let answer = eventually("an answer", async || {
                let answer = app.send(&charge_as(key, BODY)).await;
                (answer.status == 201).then_some(())
            });
            answer.await;
        }
        assert_eq!(app.rows().await, [count; 3]);
    }

    async fn a_refused_row_does_not_fail_its_neighbours(app: &TestApp) {
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'canary'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW
                 WHEN (convert_from(NEW.payload, 'UTF8') LIKE '%\"amountCents\":13,%')
                 EXECUTE FUNCTION refuse()";
        app.client().await.batch_execute(refuse).await.unwrap();
        let (refused_key, mut connections) = (Uuid::new_v4(), Vec::new());
        for cents in 1..=40 {
            let mut connection = app.connect().await;
            let body = format!("{{\"amountCents\":{}}}", if cents % 10 == 0 { 13 } else { 7 });
            let key = if cents == 10 { refused_key } else { Uuid::new_v4() };
            connection.send(&charge_as(key, &body).bytes()).await;
            connections.push((cents, connection));
        }
        for (cents, connection) in &mut connections {
            let answer = connection.response().await;
            if *cents % 10 == 0 {
                answer.assert_problem(500, "internal");
            } else {
                answer.assert_created();
            }
        }
        assert_eq!(app.rows().await, [36, 36, 36]);

        // A fault of ours is no outcome: nothing was stored, and the key is as it was.
        app.client().await.batch_execute("DROP TRIGGER refuse ON outbox").await.unwrap();
        app.send(&charge_as(refused_key, r#"{"amountCents":13}"#)).await.assert_created();
    }

    with HASTY;
    async fn what_the_server_says_of_itself_is_never_a_500(app: &TestApp) {
        let operator = app.client().await;
        for state in [
            "55P03", "40P01", "40001", "57014", "57P01", "57P03", "53300", "53100", "53200",
            "25006", "25P03", "08006", "58030", "XX000", "XX001", "0A000",
        ] {
            let refuse = format!(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN RAISE EXCEPTION 'canary' USING ERRCODE = '{state}'; END $$;
                 CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON charges
                     FOR EACH ROW EXECUTE FUNCTION refuse()"
            );
            operator.batch_execute(&refuse).await.unwrap();
            let key = Uuid::new_v4();
            let before = app.rows().await;
            assert_unavailable(&app.send(&charge_as(key, BODY)).await);
            assert_eq!(app.rows().await, before, "{state}");
            operator.batch_execute("DROP TRIGGER refuse ON charges").await.unwrap();
            created_again(app, key).await;
        }
    }

    async fn a_fault_that_passes_is_not_noticed(app: &TestApp) {
        let operator = app.client().await;
        let refuse_twice = "CREATE SEQUENCE tries;
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF nextval('tries') <= 2 THEN
                     RAISE EXCEPTION 'canary' USING ERRCODE = '40001';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON charges FOR EACH ROW EXECUTE FUNCTION refuse()";
        operator.batch_execute(refuse_twice).await.unwrap();
        app.send(&charge(BODY)).await.assert_created();
        assert_eq!(app.rows().await, [1, 1, 1]);
    }

    with HASTY;
    async fn a_server_that_became_a_standby_is_left(app: &TestApp) {
        let operator = app.client().await;
        let name = app.database.name();
        app.send(&charge(BODY)).await.assert_created();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
        operator.batch_execute(&read_only).await.unwrap();
        operator.execute(end, &[]).await.unwrap();
        let key = Uuid::new_v4();
        for _ in 0..3 {
            assert_unavailable(&app.send(&charge_as(key, BODY)).await);
        }
        // New connections are to a primary again; the old ones stay what they were.
        let primary = format!("SET default_transaction_read_only = off;
             ALTER DATABASE {name} RESET default_transaction_read_only");
        operator.batch_execute(&primary).await.unwrap();
        created_again(app, key).await;
        assert_eq!(rows(&operator).await, [2, 2, 2]);
    }

    with &[("ONCEBOX_BATCH_QUEUE", "1"), ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
           ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"), ("ONCEBOX_HTTP_DEADLINE", "5m")];
    async fn when_too_many_wait_the_rest_is_503(app: &TestApp) {
        // The committer itself cannot go on: the table it writes first is locked.
        let operator = app.client().await;
        let lock = "BEGIN; LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE";
        operator.batch_execute(lock).await.unwrap();
        let mut connections = Vec::new();
        let keys: Vec<_> = (0..200).map(|_| Uuid::new_v4()).collect();
        for key in &keys {
            let mut connection = app.connect().await;
            connection.send(&charge_as(*key, BODY).bytes()).await;
            connections.push(connection);
        }
        eventually("the queue is full", async || {
            (app.metric("charge_api_committer_queue_length") >= 1.0).then_some(())
        })
        .await;
        operator.batch_execute("ROLLBACK").await.unwrap();
        for connection in &mut connections {
            let answer = connection.response().await;
            match answer.status {
                201 => drop(answer.assert_created()),
                _ => assert_unavailable(&answer),
            }
        }
        for key in &keys {
            assert_eq!(app.send(&charge_as(*key, BODY)).await.status, 201);
        }
        assert_eq!(app.rows().await, [200, 200, 200]);
        assert_eq!(app.metric("charge_api_committer_queue_length"), 0.0);
    }

    with &[("ONCEBOX_BATCH_QUEUE", "2"), ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
           ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"), ("ONCEBOX_HTTP_DEADLINE", "5m")];
    async fn when_batch_after_batch_fails_no_more_than_a_queue_of_charges_waits(app: &TestApp) {
        let operator = app.client().await;
        let lock = "BEGIN; LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE";
        operator.batch_execute(lock).await.unwrap();
        let mut connections = Vec::new();
        for count in 1..=8 {
            let mut connection = app.connect().await;
            connection.send(&charge(BODY).bytes()).await;
            connections.push(connection);
            eventually("its batch has begun", async || {
                let taken = app.metric("charge_api_committer_batch_size_sum");
                (taken >= f64::from(count)).then_some(())
            })
            .await;
        }
        // None was refused by the queue. Two wait alone.
        let refused = "charge_api_http_request_duration_seconds_count{route=\"/charges\",status=\"503\"}";
        eventually("the rest is told so", async || {
            (app.series(refused) == Some(6.0)).then_some(())
        })
        .await;
        operator.batch_execute("ROLLBACK").await.unwrap();
        let mut created = 0;
        for connection in &mut connections {
            let answer = connection.response().await;
            match answer.status {
                201 => created += 1,
                _ => assert_unavailable(&answer),
            }
        }
        assert_eq!((created, app.rows().await), (2, [2, 2, 2]));
    }

    with &[("ONCEBOX_HTTP_DEADLINE", "300ms"), ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "0s"),
           ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"), ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m")];
    async fn a_charge_that_takes_too_long_is_503_and_its_key_settles_it(app: &TestApp) {
        let (key, hold) = (Uuid::new_v4(), Hold::on(app).await);
        assert_unavailable(&app.send(&charge_as(key, HELD)).await);
        hold.release().await;
        let settled = eventually("the key is settled", async || {
            let answer = app.send(&charge_as(key, HELD)).await;
            (answer.status == 201).then_some(())
        });
        settled.await;
        assert_eq!(app.rows().await, [1, 1, 1]);
    }
}

/// An app whose database is reached by another URL.
async fn by_way_of(url: &str, batch: &str, more: &[(&str, &str)]) -> TestApp {
    let settings = [&[("DATABASE_URL", url), ("ONCEBOX_BATCH_MAX", batch)][..], more].concat();
    TestApp::with(&settings).await
}

#[tokio::test]
async fn an_answer_lost_on_its_way_from_the_database_is_looked_up() {
    for batch in ["1", "128"] {
        let database = pg_test::database().await;
        let proxy = Proxy::to(&database.url()).await;
        let app = by_way_of(proxy.url(), batch, &[]).await;
        app.send(&charge(BODY)).await.assert_created();
        proxy.swallow_answers();
        let (key, mut connection) = (Uuid::new_v4(), app.connect().await);
        connection.send(&charge_as(key, BODY).bytes()).await;
        let observer = database.client().await;
        eventually("the charge is committed", async || {
            (rows(&observer).await == [2, 2, 2]).then_some(())
        })
        .await;
        proxy.cut();
        let first = connection.response().await;
        first.assert_created();
        app.send(&charge_as(key, BODY)).await.assert_replay_of(&first);
        assert_eq!(rows(&observer).await, [2, 2, 2]);
        app.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_503() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/nothing", silent.local_addr().unwrap());
    let app = by_way_of(&url, "128", HASTY).await;
    assert_unavailable(&app.send(&charge(BODY)).await);
    assert_unavailable(&app.send(&get("/charges/8e03978e-40d5-43e8-bc93-6894a57f9324")).await);
    app.stop().await;
}
