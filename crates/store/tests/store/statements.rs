//! tokio-postgres checks nothing when it compiles, so every statement is prepared here.

#[tokio::test]
async fn every_statement_prepares_against_the_migrated_schema() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let mut faults = Vec::new();
    for statement in store::STATEMENTS.iter().copied().flatten() {
        if let Err(error) = client.prepare(statement.sql).await {
            faults.push(format!("{}: {error:?}", statement.operation));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
