//! `oncebox reconcile`.

use tokio_postgres::Client;

use crate::oncebox;

/// So many charges with their keys and events, as the API writes them: ids of the same moment.
async fn charges(client: &Client, tenant: &str, count: i32) {
    let sql = format!(
        "WITH made AS MATERIALIZED (SELECT uuid_v7() AS charge, uuid_v7() AS event FROM generate_series(1, {count})),
              charge AS (
                  INSERT INTO charges (tenant_id, id, idempotency_key, amount_cents, currency, status, created_at)
                  SELECT '{tenant}', charge, charge, 1, 'BRL', 'succeeded', now() FROM made
              ),
              key AS (
                  INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id)
                  SELECT '{tenant}', 'POST /charges', charge, decode(repeat('00', 32), 'hex'), 1, 'in_progress', charge FROM made
              )
         INSERT INTO outbox (tenant_id, id, aggregate_id, event_type, payload)
         SELECT '{tenant}', event, charge::text, 'ChargeCreated', '' FROM made"
    );
    client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn what_was_written_together_is_clean_over_many_pages_and_tenants() {
    let database = pg_test::database().await;
    let client = database.client().await;
    oncebox(&database.url(), &["reconcile"]).await.ends_with(0);
    charges(&client, "a", 12_000).await;
    charges(&client, "b", 3).await;
    // Another service's events are none of its business.
    let other =
        "INSERT INTO outbox (aggregate_id, event_type, payload) VALUES ('x', 'Counted', '')";
    client.batch_execute(other).await.unwrap();

    let answer = oncebox(&database.url(), &["reconcile", "--json"]).await.ends_with(0).json();

    assert_eq!(answer["clean"], true);
    assert_eq!(answer["checked"]["charges"], 12_003);
    assert_eq!(answer["checked"]["events"], 12_003);
    assert_eq!(answer["checked"]["keys"], 12_003);
}

#[tokio::test]
async fn each_kind_of_mismatch_is_found_named_and_exit_code_1() {
    let database = pg_test::database().await;
    let client = database.client().await;
    charges(&client, "a", 100).await;
    let first: String =
        client.query_one("SELECT min(id::text) FROM charges", &[]).await.unwrap().get(0);
    client
        .batch_execute(&format!("DELETE FROM outbox WHERE aggregate_id = '{first}'"))
        .await
        .unwrap();
    let last = "DELETE FROM charges WHERE id::text = (SELECT max(id::text) FROM charges)";
    client.batch_execute(last).await.unwrap();

    let answer = oncebox(&database.url(), &["reconcile", "--json"]).await.ends_with(1).json();

    assert_eq!(answer["mismatches"]["charge_without_event"], 1);
    assert_eq!(answer["mismatches"]["event_without_charge"], 1);
    assert_eq!(answer["mismatches"]["key_without_charge"], 1);
    assert_eq!(answer["named"][0]["id"], first.as_str());
    let text = oncebox(&database.url(), &["reconcile"]).await.ends_with(1);
    assert!(text.stdout.contains(&first), "{text:?}");
}

#[tokio::test]
async fn an_event_that_lies_far_from_its_charge_or_was_discarded_is_found() {
    let database = pg_test::database().await;
    let client = database.client().await;
    charges(&client, "a", 2).await;
    let far = "UPDATE outbox SET id = '00000000-0000-7000-8000-000000000001'
               WHERE id::text = (SELECT min(id::text) FROM outbox);
               INSERT INTO outbox_discarded (tenant_id, id, aggregate_id, event_type, payload, headers, created_at, attempts)
               SELECT tenant_id, id, aggregate_id, event_type, payload, headers, created_at, attempts
               FROM outbox WHERE id::text = (SELECT max(id::text) FROM outbox);
               DELETE FROM outbox WHERE id IN (SELECT id FROM outbox_discarded)";
    client.batch_execute(far).await.unwrap();

    oncebox(&database.url(), &["reconcile"]).await.ends_with(0);
}

#[tokio::test]
async fn a_window_leaves_out_what_is_older() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let old = "INSERT INTO charges (tenant_id, id, idempotency_key, amount_cents, currency, status, created_at)
               VALUES ('a', '01000000-0000-7000-8000-000000000001', gen_random_uuid(), 1, 'BRL', 'succeeded', now())";
    client.batch_execute(old).await.unwrap();

    oncebox(&database.url(), &["reconcile", "--window", "24h"]).await.ends_with(0);
    oncebox(&database.url(), &["reconcile"]).await.ends_with(1);
    oncebox(&database.url(), &["reconcile", "--window", "yesterday"]).await.ends_with(64);
}
