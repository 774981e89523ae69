//! Retention: which keys go, and which never do.

use tokio_postgres::Client;

use crate::pool;

async fn key(client: &Client, name: &str, state: &str, expires: &str) {
    let sql = format!(
        "INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version, state,
             charge_id, response_status, response_content_type, response_body, expires_at)
         VALUES ('{name}', 'POST /charges', gen_random_uuid(), decode(repeat('00', 32), 'hex'), 1, '{state}',
             gen_random_uuid(), 201, 'application/json', '', {expires})"
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn left(client: &Client) -> Vec<String> {
    let names = "SELECT tenant_id FROM idempotency_keys ORDER BY tenant_id";
    client.query(names, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn expired_completed_keys_go_in_batches_and_no_other_key_ever_does() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let connection = pool(&database).get().await.unwrap();
    let past = "now() - interval '1 hour'";
    for name in ["a", "b", "c"] {
        key(&client, name, "completed", past).await;
    }
    key(&client, "failed", "failed", past).await;
    key(&client, "never", "completed", "NULL").await;
    key(&client, "running", "in_progress", past).await;
    key(&client, "valid", "completed", "now() + interval '1 hour'").await;

    let mut deleted = Vec::new();
    for _ in 0..3 {
        deleted.push(store::retention::delete_expired(&connection, 2).await.unwrap().deleted);
    }

    assert_eq!(deleted, [2, 1, 0]);
    assert_eq!(left(&client).await, ["failed", "never", "running", "valid"]);
}

#[tokio::test]
async fn a_key_that_a_request_is_taking_over_is_left_to_it() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let connection = pool(&database).get().await.unwrap();
    for name in ["held", "free"] {
        key(&client, name, "completed", "now() - interval '1 hour'").await;
    }
    client.batch_execute("BEGIN").await.unwrap();
    let take_over = "UPDATE idempotency_keys SET expires_at = now() + interval '1 hour' WHERE tenant_id = 'held'";
    client.batch_execute(take_over).await.unwrap();

    let batch = store::retention::delete_expired(&connection, 10).await.unwrap();

    assert_eq!(batch.deleted, 1);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(left(&client).await, ["held"]);
}
