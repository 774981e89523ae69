//! The contract of the outbox as its schema holds it: what a writer is told at once.

use tokio_postgres::Client;

/// A good row with one column said otherwise.
fn insert(column: &str, value: &str) -> String {
    let mut row = [
        ("tenant_id", "'default'"),
        ("aggregate_id", "'a'"),
        ("aggregate_version", "1"),
        ("event_type", "'Counted'"),
        ("payload", "'{}'"),
        ("headers", "'{}'"),
        ("created_at", "now()"),
    ];
    row.iter_mut().filter(|(name, _)| *name == column).for_each(|cell| cell.1 = value);
    let (names, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
    format!("INSERT INTO outbox ({}) VALUES ({})", names.join(", "), values.join(", "))
}

const REFUSED: [(&str, &str); 23] = [
    ("tenant_id", "''"),
    ("tenant_id", "repeat('x', 256)"),
    ("aggregate_id", "''"),
    ("aggregate_id", "repeat('x', 1025)"),
    ("aggregate_id", "repeat('ж', 513)"),
    ("aggregate_version", "-1"),
    ("event_type", "''"),
    ("event_type", "repeat('x', 256)"),
    ("payload", "convert_to(repeat('x', 1048577), 'UTF8')"),
    ("headers", "'[]'"),
    ("headers", "'[{\"a\": \"b\"}]'"),
    ("headers", "'\"text\"'"),
    ("headers", "'null'"),
    ("headers", "'{\"a\": 1}'"),
    ("headers", "'{\"a\": null}'"),
    ("headers", "'{\"a\": [\"b\"]}'"),
    ("headers", "'{\"a\": {\"b\": \"c\"}}'"),
    ("headers", "'{\"\": \"b\"}'"),
    ("headers", "'{\"a b\": \"c\"}'"),
    ("headers", "'{\"a\\nb\": \"c\"}'"),
    ("headers", "jsonb_build_object('a', repeat('x', 16384))"),
    ("created_at", "'infinity'"),
    ("created_at", "'10000-01-01'"),
];

#[tokio::test]
async fn a_row_that_breaks_the_contract_is_refused_by_the_constraint_of_its_column() {
    let database = pg_test::database().await;
    let client = database.client().await;
    for (column, value) in REFUSED {
        let error = client.batch_execute(&insert(column, value)).await.unwrap_err();
        let constraint = error.as_db_error().and_then(|error| error.constraint());
        assert_eq!(constraint, Some(&*format!("outbox_{column}")), "{value}: {error}");
    }
    // Neither a text nor a header can hold NUL: PostgreSQL itself refuses it.
    for (column, value) in [("event_type", "E'a\\000'"), ("headers", r#"'{"a": "\u0000"}'"#)] {
        client.batch_execute(&insert(column, value)).await.unwrap_err();
    }
    assert_eq!(rows(&client).await, 0);
}

#[tokio::test]
async fn what_just_keeps_the_contract_is_taken() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let taken = [
        ("tenant_id", "repeat('x', 255)"),
        ("aggregate_id", "repeat('ж', 512)"),
        ("aggregate_version", "NULL"),
        ("aggregate_version", "0"),
        ("event_type", "repeat('x', 255)"),
        ("payload", "''"),
        ("payload", "convert_to(repeat('x', 1048576), 'UTF8')"),
        ("headers", "'{\"trace.parent_1-x\": \"\", \"B\": \"\\u00e9\\n\"}'"),
        ("created_at", "'9999-12-29'"),
    ];
    for (column, value) in taken {
        client.batch_execute(&insert(column, value)).await.unwrap();
    }
    assert_eq!(rows(&client).await, 9);
}

/// What is there already and breaks a constraint cannot be updated, unless the constraint lets it.
#[tokio::test]
async fn a_row_from_before_the_contract_can_be_parked_and_not_be_made_pending_again() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let definition =
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'outbox_event_type'";
    let definition: String = client.query_one(definition, &[]).await.unwrap().get(0);
    client.batch_execute("ALTER TABLE outbox DROP CONSTRAINT outbox_event_type").await.unwrap();
    client.batch_execute(&insert("event_type", "''")).await.unwrap();
    let add = format!("ALTER TABLE outbox ADD CONSTRAINT outbox_event_type {definition} NOT VALID");
    client.batch_execute(&add).await.unwrap();

    client.batch_execute("UPDATE outbox SET parked_at = now()").await.unwrap();

    client.batch_execute("UPDATE outbox SET parked_at = NULL").await.unwrap_err();
    let validate = "ALTER TABLE outbox VALIDATE CONSTRAINT outbox_event_type";
    client.batch_execute(validate).await.unwrap();
}

async fn rows(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM outbox", &[]).await.unwrap().get(0)
}
