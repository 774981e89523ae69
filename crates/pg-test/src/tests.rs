use super::{database, with_database};

#[test]
fn the_database_of_a_url_is_replaced_and_nothing_else() {
    let check = |url: &str, wanted: &str| assert_eq!(with_database(url, "t_1"), wanted);
    check("postgres://u:p@h:5/old", "postgres://u:p@h:5/t_1");
    check("postgres://u:p@h:5", "postgres://u:p@h:5/t_1");
    check("postgres://u@h/old?connect_timeout=3", "postgres://u@h/t_1?connect_timeout=3");
}

#[tokio::test]
async fn each_database_is_migrated_and_its_own() {
    let (one, other) = (database().await, database().await);

    let insert = "INSERT INTO outbox (aggregate_id, event_type, payload) VALUES ('a', 'A', '')";
    one.client().await.batch_execute(insert).await.expect("a migrated schema");

    let rows = other.client().await.query("SELECT FROM outbox", &[]).await.expect("its own schema");
    assert!(rows.is_empty(), "a row of one database shows in the other");
}

#[tokio::test]
async fn a_database_is_gone_when_its_test_is_over() {
    let (first, other) = (database().await, database().await);
    let name = first.name().to_owned();

    drop(first);

    let sql = "SELECT FROM pg_database WHERE datname = $1";
    let found = other.client().await.query(sql, &[&name]).await.expect("a list of databases");
    assert!(found.is_empty(), "{name} is still there");
}
