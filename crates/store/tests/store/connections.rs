//! The pool and the transaction: what a caller may rely on after a fault.

use std::time::Duration;

use store::{Connection, DatabaseSettings, Error, Pool, Statement};

use crate::{pool, settings};

const INSERT: Statement = Statement::new("insert", "INSERT INTO notes (text) VALUES ($1)");
const FAIL: Statement =
    Statement::new("fail", "SELECT 1 / (SELECT count(*) FROM notes WHERE false)");
const COUNT: Statement = Statement::new("count", "SELECT count(*) FROM notes");
const SLEEP: Statement = Statement::new("sleep", "SELECT pg_sleep(30)");
const ALL: Statement = Statement::new("read", "SELECT * FROM notes");
const SETTINGS: Statement = Statement::new(
    "read the settings",
    "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),
            current_setting('idle_in_transaction_session_timeout'), current_setting('client_connection_check_interval'),
            current_setting('transaction_isolation')",
);

async fn notes(database: &pg_test::TestDatabase) {
    database.client().await.batch_execute("CREATE TABLE notes (text text)").await.unwrap();
}

async fn count(connection: &Connection) -> i64 {
    connection.query_opt(&COUNT, &[]).await.unwrap().unwrap().get(0)
}

// rust-postgres #1334: COMMIT answered by ROLLBACK is reported as Ok.
#[tokio::test]
async fn a_transaction_with_a_swallowed_error_does_not_commit() {
    let database = pg_test::database().await;
    notes(&database).await;
    let mut connection = pool(&database).get().await.unwrap();
    let transaction = connection.transaction().await.unwrap();
    transaction.execute(&INSERT, &[&"lost"]).await.unwrap();
    transaction.query(&FAIL, &[]).await.unwrap_err();
    assert!(matches!(transaction.commit().await, Err(Error::Poisoned)));
    assert_eq!(count(&connection).await, 0);
}

#[tokio::test]
async fn a_connection_left_inside_a_transaction_is_handed_on_clean() {
    let database = pg_test::database().await;
    notes(&database).await;
    let one = Pool::new(&DatabaseSettings { pool_max: 1, ..settings(&database) }, "one").unwrap();
    let mut connection = one.get().await.unwrap();
    let transaction = connection.transaction().await.unwrap();
    transaction.execute(&INSERT, &[&"left behind"]).await.unwrap();
    // As a cancelled future leaves it: no commit, no rollback awaited.
    std::mem::forget(transaction);
    drop(connection);
    let connection = one.get().await.unwrap();
    assert_eq!(count(&connection).await, 0);
    connection.execute(&INSERT, &[&"kept"]).await.unwrap();
    let seen_by_another = database.client().await.query_one(COUNT.sql, &[]).await.unwrap();
    assert_eq!(seen_by_another.get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_cancelled_statement_does_not_poison_the_pool() {
    let database = pg_test::database().await;
    notes(&database).await;
    let brief = DatabaseSettings {
        pool_max: 1,
        statement_timeout: Duration::from_millis(300),
        ..settings(&database)
    };
    let one = Pool::new(&brief, "one").unwrap();
    let connection = one.get().await.unwrap();
    let cancelled = tokio::time::timeout(Duration::from_millis(50), connection.query(&SLEEP, &[]));
    assert!(cancelled.await.is_err());
    drop(connection);
    assert_eq!(count(&one.get().await.unwrap()).await, 0);
}

#[tokio::test]
async fn an_exhausted_pool_answers_within_its_deadline() {
    let database = pg_test::database().await;
    let brief = DatabaseSettings {
        pool_max: 1,
        connect_timeout: Duration::from_millis(50),
        ..settings(&database)
    };
    let one = Pool::new(&brief, "one").unwrap();
    // The first connection itself may take longer than 50 ms here.
    let held = loop {
        if let Ok(connection) = one.get().await {
            break connection;
        }
    };
    let error = one.get().await.err().unwrap();
    assert!(matches!(error, Error::NoConnection { .. }) && error.is_unavailable());
    drop(held);
}

#[tokio::test]
async fn terminated_connections_are_replaced() {
    let database = pg_test::database().await;
    notes(&database).await;
    let pool = pool(&database);
    let connection = pool.get().await.unwrap();
    assert_eq!(count(&connection).await, 0);
    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'store tests' AND datname = current_database()";
    database.client().await.query(terminate, &[]).await.unwrap();
    let error = connection.query(&COUNT, &[]).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    drop(connection);
    assert_eq!(count(&pool.get().await.unwrap()).await, 0);
}

#[tokio::test]
async fn a_statement_is_prepared_anew_after_a_migration_changed_its_table() {
    let database = pg_test::database().await;
    notes(&database).await;
    let connection = pool(&database).get().await.unwrap();
    connection.query(&ALL, &[]).await.unwrap();
    let alter = "ALTER TABLE notes ADD COLUMN more integer";
    database.client().await.batch_execute(alter).await.unwrap();
    connection.query(&ALL, &[]).await.unwrap();
}

#[tokio::test]
async fn every_session_is_bounded_in_time_and_read_committed() {
    let database = pg_test::database().await;
    let connection = pool(&database).get().await.unwrap();
    let row = connection.query_opt(&SETTINGS, &[]).await.unwrap().unwrap();
    let values: Vec<&str> = (0..row.len()).map(|column| row.get(column)).collect();
    assert_eq!(values, ["10s", "200ms", "10s", "1s", "read committed"]);
}
