//! `oncebox migrate`.

use store::migrate::MIGRATIONS;

use crate::oncebox;

fn names() -> Vec<&'static str> {
    MIGRATIONS.iter().map(|migration| migration.name).collect()
}

#[tokio::test]
async fn an_empty_database_is_brought_to_the_schema_and_a_second_run_has_nothing_to_do() {
    let database = pg_test::empty_database().await;
    let url = database.url();

    let first = oncebox(&url, &["migrate"]).await.ends_with(0);
    let second = oncebox(&url, &["migrate"]).await.ends_with(0);

    for name in names() {
        assert!(first.stdout.contains(&format!("applied {name}")), "{first:?}");
    }
    assert_eq!(second.stdout, "the schema is up to date\n");
}

#[tokio::test]
async fn a_dry_run_says_what_is_missing_and_changes_nothing() {
    let database = pg_test::empty_database().await;
    let url = database.url();

    let dry = oncebox(&url, &["migrate", "--dry-run", "--json"]).await.ends_with(0).json();

    assert_eq!(dry["dryRun"], true);
    assert_eq!(dry["applied"], serde_json::json!(names()));
    let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    let count: i64 = database.client().await.query_one(tables, &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
}

#[tokio::test]
async fn the_status_is_no_before_and_yes_after() {
    let database = pg_test::empty_database().await;
    let url = database.url();

    let before = oncebox(&url, &["migrate", "--status"]).await.ends_with(1);
    assert!(before.stdout.contains("missing"), "{before:?}");
    oncebox(&url, &["migrate"]).await.ends_with(0);
    let after = oncebox(&url, &["migrate", "--status", "--json"]).await.ends_with(0).json();

    assert_eq!(after["upToDate"], true);
    assert!(after["migrations"][0]["appliedAt"].is_string(), "{after}");
}

#[tokio::test]
async fn a_database_that_is_away_is_69_and_the_password_is_nowhere() {
    // Port 1 is nobody's.
    let run = oncebox("postgres://ada:hunter2@127.0.0.1:1/x", &["migrate"]).await.ends_with(69);
    assert!(run.stderr.contains("database.url"), "{run:?}");
    assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
}

#[tokio::test]
async fn a_database_from_the_future_is_70_and_names_the_migration() {
    let database = pg_test::database().await;
    let insert =
        "INSERT INTO schema_migrations (version, name, checksum) VALUES (9999, '9999_new.sql', '')";
    database.client().await.batch_execute(insert).await.unwrap();

    for arguments in [&["migrate"][..], &["migrate", "--status"]] {
        let run = oncebox(&database.url(), arguments).await.ends_with(70);
        assert!(run.stderr.contains("9999_new.sql"), "{run:?}");
    }
}

#[tokio::test]
async fn no_verb_a_wrong_one_and_no_database_are_64() {
    for arguments in [&[][..], &["migrat"], &["migrate", "--status", "--dry-run"]] {
        oncebox("postgres://ada@127.0.0.1:1/x", arguments).await.ends_with(64);
    }
    let run = oncebox("", &["migrate"]).await.ends_with(64);
    assert!(run.stderr.contains("database.url"), "{run:?}");
}

#[tokio::test]
async fn help_names_the_exit_codes_and_the_settings() {
    let run = oncebox("", &["--help"]).await.ends_with(0);
    for word in ["migrate", "Exit codes", "69", "database.url"] {
        assert!(run.stdout.contains(word), "{word}: {run:?}");
    }
}
