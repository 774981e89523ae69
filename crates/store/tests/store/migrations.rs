//! The migration runner.

use std::collections::BTreeSet;

use store::migrate::{MIGRATIONS, MigrateError, Migration, run, run_these};

use crate::until_blocked;

const ONE: Migration = Migration { name: "0001_one.sql", sql: "CREATE TABLE one (id integer);" };
const TWO: Migration = Migration { name: "0002_two.sql", sql: "CREATE TABLE two (id integer);" };

#[test]
fn every_file_of_the_folder_is_embedded_in_order() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sql"))
        .collect();
    let embedded: Vec<_> = MIGRATIONS.iter().map(|migration| migration.name).collect();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), embedded);
    for (version, name) in (1..).zip(embedded) {
        assert!(name.starts_with(&format!("{version:04}_")), "{name} leaves a gap");
    }
}

#[tokio::test]
async fn four_starters_at_once_on_an_empty_database_all_succeed() {
    let database = pg_test::empty_database().await;
    let url = database.url();
    let (a, b, c, d) = tokio::join!(run(&url), run(&url), run(&url), run(&url));
    let applied: Vec<_> = [a, b, c, d].into_iter().flat_map(|result| result.unwrap()).collect();
    assert_eq!(applied, MIGRATIONS.iter().map(|migration| migration.name).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_database_newer_than_the_binary_is_refused_by_name() {
    let database = pg_test::empty_database().await;
    run_these(&database.url(), &[ONE, TWO]).await.unwrap();
    let error = run_these(&database.url(), &[ONE]).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::UnknownVersion { version: 2, name } if name == TWO.name)
    );
}

#[tokio::test]
async fn a_file_changed_after_it_was_applied_is_refused_by_name() {
    let database = pg_test::empty_database().await;
    run_these(&database.url(), &[ONE, TWO]).await.unwrap();
    let changed = Migration { sql: "CREATE TABLE one (id bigint);", ..ONE };
    let error = run_these(&database.url(), &[changed, TWO]).await.unwrap_err();
    assert!(matches!(error, MigrateError::Changed { name } if name == ONE.name));
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_of_itself_and_the_next_run_goes_on() {
    let database = pg_test::empty_database().await;
    let broken = Migration { sql: "CREATE TABLE two (id integer); SELECT 1 / 0;", ..TWO };
    run_these(&database.url(), &[ONE, broken]).await.unwrap_err();
    assert_eq!(run_these(&database.url(), &[ONE, TWO]).await.unwrap(), [TWO.name]);
}

#[tokio::test]
async fn a_runner_killed_in_the_middle_leaves_the_next_one_to_go_on() {
    let database = pg_test::empty_database().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE gate ()").await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE gate").await.unwrap();
    let waits = Migration { sql: "CREATE TABLE two (id integer); SELECT * FROM gate;", ..TWO };
    let url = database.url();
    let killed = tokio::spawn(async move { run_these(&url, &[ONE, waits]).await });
    let pid = until_blocked(&database).await;
    client.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    killed.await.unwrap().unwrap_err();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(run_these(&database.url(), &[ONE, TWO]).await.unwrap(), [TWO.name]);
}

#[tokio::test]
async fn a_file_without_a_transaction_may_build_an_index_concurrently_and_be_cut_off() {
    let database = pg_test::empty_database().await;
    let index = Migration {
        name: "0002_index.sql",
        sql: "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS one_id ON one (id);\n-- done\nSELECT 1;\n",
    };
    let cut_off = Migration {
        sql: "-- no-transaction\nCREATE INDEX CONCURRENTLY IF NOT EXISTS one_id ON one (id);\nSELECT 1 / 0;\n",
        ..index
    };
    run_these(&database.url(), &[ONE, cut_off]).await.unwrap_err();
    let url = database.url();
    let migrations = [ONE, index];
    let (a, b) = tokio::join!(run_these(&url, &migrations), run_these(&url, &migrations));
    assert_eq!([a.unwrap(), b.unwrap()].concat(), [index.name]);
}
