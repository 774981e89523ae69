//! What the API does beside its requests: expired keys go, and the books are checked.

use std::io::Write;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use crate::app::{TestApp, eventually, rows};
use crate::request::{charge, charge_as};

const BODY: &str = r#"{"amountCents":4900}"#;

/// As often as the settings allow.
const EAGER: &[(&str, &str)] = &[
    ("ONCEBOX_RETENTION_INTERVAL", "1s"),
    ("ONCEBOX_RETENTION_BATCH", "2"),
    ("ONCEBOX_RECONCILIATION_INTERVAL", "1s"),
];
const RETENTION: &str = "charge_api_retention";
const RECONCILIATION: &str = "charge_api_reconciliation";

fn failures(app: &TestApp, job: &str) -> f64 {
    app.metric(&format!("{job}_failures_total"))
}

/// The job has come to its end after now: a run that is under way does not count.
async fn another_run(app: &TestApp, job: &str) {
    let series = format!("{job}_last_success_timestamp_seconds");
    let before = app.metric(&series);
    eventually("another run", async || (app.metric(&series) > before).then_some(())).await;
    let first = app.metric(&series);
    eventually("a whole run", async || (app.metric(&series) > first).then_some(())).await;
}

/// What this thread logs from now on, which is everything but the workers' requests.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn contains(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().unwrap()).contains(words)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn expired_keys_go_in_batches_and_no_other_key_ever_does() {
    let app = TestApp::with(EAGER).await;
    let client = app.client().await;
    let note = "CREATE TABLE deletions (keys bigint);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO deletions SELECT count(*) FROM gone; RETURN NULL; END $$;
        CREATE TRIGGER note AFTER DELETE ON idempotency_keys REFERENCING OLD TABLE AS gone
            FOR EACH STATEMENT EXECUTE FUNCTION note()";
    client.batch_execute(note).await.unwrap();
    for cents in 1..=8 {
        let body = format!("{{\"amountCents\":{cents}}}");
        app.send(&charge_as(Uuid::from_u128(cents), &body)).await.assert_created();
    }
    let end = "UPDATE idempotency_keys SET
            expires_at = CASE WHEN key <= $1 THEN now() - interval '1 hour' WHEN key = $2 THEN NULL
                              ELSE expires_at END,
            state = CASE WHEN key = $1 THEN 'in_progress' ELSE state END";
    client.execute(end, &[&Uuid::from_u128(6), &Uuid::from_u128(7)]).await.unwrap();

    eventually("the expired keys are gone", async || {
        (rows(&client).await == [3, 8, 8]).then_some(())
    })
    .await;
    another_run(&app, RETENTION).await;

    let left = client.query("SELECT key FROM idempotency_keys ORDER BY key", &[]).await.unwrap();
    let left: Vec<u128> = left.iter().map(|row| row.get::<_, Uuid>(0).as_u128()).collect();
    assert_eq!(left, [6, 7, 8], "unfinished, never, unexpired");
    let largest = client.query_one("SELECT max(keys), sum(keys)::bigint FROM deletions", &[]).await;
    let largest = largest.unwrap();
    assert_eq!((largest.get::<_, i64>(0), largest.get::<_, i64>(1)), (2, 5));
    assert_eq!(app.metric("charge_api_retention_deleted_total"), 5.0);
    assert_eq!(failures(&app, RETENTION), 0.0);
    app.stop().await;
}

#[tokio::test]
async fn several_processes_share_the_work() {
    let one = TestApp::with(EAGER).await;
    let client = one.client().await;
    let others = [
        TestApp::on(Arc::clone(&one.database), EAGER).await,
        TestApp::on(Arc::clone(&one.database), EAGER).await,
    ];
    for _ in 0..200 {
        one.send(&charge(BODY)).await.assert_created();
    }
    let end = "UPDATE idempotency_keys SET expires_at = now()";
    client.batch_execute(end).await.unwrap();
    eventually("all keys are gone", async || (rows(&client).await[0] == 0).then_some(())).await;
    let all = others.iter().chain([&one]);
    let counted = || all.clone().map(|app| app.metric("charge_api_retention_deleted_total")).sum();
    eventually("each is counted once", async || {
        let sum: f64 = counted();
        (sum == 200.0).then_some(())
    })
    .await;
    for app in all {
        another_run(app, RETENTION).await;
        assert_eq!((failures(app, RETENTION), failures(app, RECONCILIATION)), (0.0, 0.0));
    }
    assert_eq!(rows(&client).await, [0, 200, 200]);
    for app in others {
        app.stop().await;
    }
    one.stop().await;
}

#[tokio::test]
async fn books_that_do_not_agree_show_in_the_metric_and_in_the_log() {
    let (log, _logging) = Log::start();
    let app = TestApp::with(EAGER).await;
    let client = app.client().await;
    for _ in 0..3 {
        app.send(&charge(BODY)).await.assert_created();
    }
    let mismatches =
        |kind: &str| app.metric(&format!("{RECONCILIATION}_mismatches{{kind=\"{kind}\"}}"));
    let all = ["charge_without_event", "event_without_charge", "key_without_charge"];
    another_run(&app, RECONCILIATION).await;
    assert_eq!(all.map(mismatches), [0.0; 3]);
    assert!(!log.contains("do not agree"));

    let break_two = "DELETE FROM outbox WHERE id = (SELECT min(id::text)::uuid FROM outbox);
        DELETE FROM charges WHERE id = (SELECT max(id::text)::uuid FROM charges)";
    client.batch_execute(break_two).await.unwrap();
    eventually("each kind is found", async || (all.map(mismatches) == [1.0; 3]).then_some(()))
        .await;
    assert!(log.contains("do not agree: run `oncebox reconcile`"));

    let mend = "DELETE FROM charges c
            WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.aggregate_id = c.id::text);
        DELETE FROM outbox o
            WHERE NOT EXISTS (SELECT FROM charges c WHERE c.id::text = o.aggregate_id);
        DELETE FROM idempotency_keys k
            WHERE NOT EXISTS (SELECT FROM charges c WHERE c.id = k.charge_id)";
    client.batch_execute(mend).await.unwrap();
    eventually("they agree again", async || (all.map(mismatches) == [0.0; 3]).then_some(())).await;
    app.stop().await;
}

#[tokio::test]
async fn a_run_that_fails_shows_and_the_next_one_works() {
    let (log, _logging) = Log::start();
    let database = Arc::new(pg_test::database().await);
    let client = database.client().await;
    // A login that may nothing yet.
    let role = format!("{}_jobs", database.name());
    let make = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'");
    client.batch_execute(&make).await.unwrap();
    let url = database.url();
    let (_, place) = url.split_once('@').unwrap();
    let url = format!("postgres://{role}:secret@{place}");
    let settings = [EAGER, &[("ONCEBOX_JOBS_DATABASE_URL", url.as_str())]].concat();
    let app = TestApp::on(Arc::clone(&database), &settings).await;

    let both = [RETENTION, RECONCILIATION];
    let failed = async |than: f64| {
        eventually("both jobs have failed", async || {
            both.iter().all(|job| failures(&app, job) > than).then_some(())
        })
        .await;
    };
    failed(0.0).await;
    assert!(log.contains("a job failed") && log.contains("permission denied"));
    assert_eq!(app.metric(&format!("{RETENTION}_last_success_timestamp_seconds")), 0.0);
    app.send(&charge(BODY)).await.assert_created();

    client.batch_execute(&format!("GRANT oncebox_jobs TO {role}")).await.unwrap();
    for job in both {
        another_run(&app, job).await;
    }

    // The database is away for them, and comes back.
    let before = both.map(|job| failures(&app, job)).into_iter().fold(0.0, f64::max);
    client.batch_execute(&format!("ALTER ROLE {role} NOLOGIN")).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
    client.execute(end, &[&role]).await.unwrap();
    failed(before).await;
    client.batch_execute(&format!("ALTER ROLE {role} LOGIN")).await.unwrap();
    for job in both {
        another_run(&app, job).await;
    }
    app.stop().await;
    client.batch_execute(&format!("DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn a_job_at_work_does_not_hold_up_the_end() {
    let patient = [EAGER, crate::hold::PATIENT].concat();
    let app = TestApp::with(&patient).await;
    let database = Arc::clone(&app.database);
    let (holder, observer) = (database.client().await, database.client().await);
    let lock = "BEGIN; LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'charge-api jobs' AND wait_event_type = 'Lock'";
    let count = async || observer.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0);
    eventually("both jobs wait", async || (count().await == 2).then_some(())).await;
    app.stop().await;
    eventually("their statements end", async || (count().await == 0).then_some(())).await;
    holder.batch_execute("ROLLBACK").await.unwrap();
}
