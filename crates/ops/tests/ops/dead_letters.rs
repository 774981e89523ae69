//! `oncebox dead-letters`.

use tokio_postgres::Client;

use crate::oncebox;

const EVENT: &str = "018f0000-0000-7000-8000-00000000000e";
const LETTER: &str = "018f0000-0000-7000-8000-00000000000d";

/// A record that the consumer could read and not apply: its inbox row was written with the letter.
async fn refused_event(client: &Client, headers: &str) {
    let sql = format!(
        "INSERT INTO inbox (consumer, event_id) VALUES ('receipts', '{EVENT}');
         INSERT INTO dead_letters (id, consumer, source_topic, source_partition, source_offset,
             source_timestamp, event_id, key, headers, payload, reason, attempts)
         VALUES ('{LETTER}', 'receipts', 'charges.events', 0, 7, 1, '{EVENT}', 'a', '{headers}',
             'canary-payload', 'canary-reason', 5)"
    );
    client.batch_execute(&sql).await.unwrap();
}

const WHOLE: &str = r#"[{"name":"ce_id","value":"018f0000-0000-7000-8000-00000000000e"},
    {"name":"ce_type","value":"Counted"},{"name":"ce_subject","value":"a"},
    {"name":"ce_tenantid","value":"t1"},{"name":"ce_sequence","value":"3"},
    {"name":"ce_time","value":"2026-11-30T12:00:00Z"},{"name":"traceparent","value":"00-1-2-03"}]"#;
/// No type: the consumer could not read it, so it did not settle its event.
const UNREADABLE: &str = r#"[{"name":"ce_id","value":"018f0000-0000-7000-8000-00000000000e"}]"#;

async fn count(client: &Client, condition: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {condition}"), &[]).await.unwrap().get(0)
}

async fn everything(client: &Client) -> [i64; 4] {
    let mut counts = [0; 4];
    for (n, table) in ["dead_letters", "inbox", "outbox", "operator_actions"].iter().enumerate() {
        counts[n] = count(client, table).await;
    }
    counts
}

#[tokio::test]
async fn letters_are_listed_and_shown_without_what_may_be_secret() {
    let database = pg_test::database().await;
    refused_event(&database.client().await, WHOLE).await;
    let url = database.url();

    let list = oncebox(&url, &["dead-letters", "list", "--json"]).await.ends_with(0);
    assert!(!list.stdout.contains("canary"), "{list:?}");
    assert_eq!(list.json()["letters"][0]["event"], EVENT);
    let other = oncebox(&url, &["dead-letters", "list", "--consumer", "other"]).await.ends_with(0);
    assert_eq!(other.stdout, "no dead letters\n");
    let show = oncebox(&url, &["dead-letters", "show", LETTER]).await.ends_with(0);
    assert!(!show.stdout.contains("canary"), "{show:?}");
    let show = oncebox(&url, &["dead-letters", "show", LETTER, "--payload"]).await.ends_with(0);
    assert!(show.stdout.contains("canary-payload"), "{show:?}");
    assert!(show.stdout.contains("canary-reason"), "{show:?}");
    oncebox(&url, &["dead-letters", "show", EVENT]).await.ends_with(1);
}

#[tokio::test]
async fn a_letter_tells_whether_it_was_published_and_can_be_requeued_all_the_same() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, WHOLE).await;
    let url = database.url();
    let list = oncebox(&url, &["dead-letters", "list", "--json"]).await.ends_with(0);
    assert_eq!(list.json()["letters"][0]["publishedAt"], serde_json::Value::Null);
    let failed = "UPDATE dead_letter_publications SET attempts = 1, last_error = 'no such topic'";
    client.batch_execute(failed).await.unwrap();
    let show = oncebox(&url, &["dead-letters", "show", LETTER]).await.ends_with(0);
    assert!(show.stdout.contains("no: no such topic"), "{show:?}");

    let published = "UPDATE dead_letter_publications SET published_at = '2026-12-01T10:00:00Z'";
    client.batch_execute(published).await.unwrap();

    let list = oncebox(&url, &["dead-letters", "list"]).await.ends_with(0);
    assert!(list.stdout.contains("2026-12-01T10:00:00"), "{list:?}");
    let show = oncebox(&url, &["dead-letters", "show", LETTER]).await.ends_with(0);
    assert!(show.stdout.contains("2026-12-01T10:00:00"), "{show:?}");
    oncebox(&url, &["dead-letters", "requeue", LETTER, "--yes"]).await.ends_with(0);
    assert_eq!(everything(&client).await, [0, 0, 1, 1]);
    assert_eq!(count(&client, "dead_letter_publications").await, 0);
}

#[tokio::test]
async fn a_requeued_letter_is_an_event_again_that_its_consumer_has_not_seen() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, WHOLE).await;
    let url = database.url();
    let before = everything(&client).await;

    oncebox(&url, &["dead-letters", "requeue", LETTER]).await.ends_with(64);
    let dry = oncebox(&url, &["dead-letters", "requeue", LETTER, "--dry-run"]).await.ends_with(0);
    assert!(dry.stdout.contains("would requeue"), "{dry:?}");
    assert_eq!(everything(&client).await, before);

    oncebox(&url, &["dead-letters", "requeue", LETTER, "--yes"]).await.ends_with(0);

    assert_eq!(everything(&client).await, [0, 0, 1, 1]);
    let row = format!(
        "outbox WHERE tenant_id = 't1' AND id = '{EVENT}' AND aggregate_id = 'a' AND aggregate_version = 3
         AND event_type = 'Counted' AND payload = 'canary-payload' AND published_at IS NULL
         AND created_at = '2026-11-30T12:00:00Z' AND headers->>'traceparent' = '00-1-2-03'
         AND headers->>'replay' = (SELECT id::text FROM operator_actions)"
    );
    assert_eq!(count(&client, &row).await, 1);
    let audited: String =
        client.query_one("SELECT arguments::text FROM operator_actions", &[]).await.unwrap().get(0);
    assert!(audited.contains("charges.events") && !audited.contains("canary"), "{audited}");
}

#[tokio::test]
async fn an_event_whose_outbox_row_is_there_is_published_from_that_row() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, WHOLE).await;
    let row = format!(
        "INSERT INTO outbox (tenant_id, id, aggregate_id, event_type, payload, published_at, published_topic)
         VALUES ('t1', '{EVENT}', 'a', 'Counted', 'the truth', now(), 'charges.events')"
    );
    client.batch_execute(&row).await.unwrap();

    oncebox(&database.url(), &["dead-letters", "requeue", LETTER, "--yes"]).await.ends_with(0);

    assert_eq!(everything(&client).await, [0, 0, 1, 1]);
    let pending =
        "outbox WHERE payload = 'the truth' AND published_at IS NULL AND published_topic IS NULL";
    assert_eq!(count(&client, pending).await, 1);
}

#[tokio::test]
async fn an_unreadable_copy_of_a_settled_event_never_lets_it_be_applied_twice() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, UNREADABLE).await;
    let before = everything(&client).await;

    let arguments = ["dead-letters", "requeue", LETTER, "--yes"];
    let run = oncebox(&database.url(), &arguments).await.ends_with(70);

    assert!(run.stderr.contains("discard this letter"), "{run:?}");
    assert_eq!(everything(&client).await, before);
}

#[tokio::test]
async fn a_record_without_an_id_or_a_type_is_refused_with_what_to_do() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, UNREADABLE).await;
    client.batch_execute("DELETE FROM inbox").await.unwrap();
    let arguments = ["dead-letters", "requeue", LETTER, "--yes"];

    let no_type = oncebox(&database.url(), &arguments).await.ends_with(70);
    assert!(no_type.stderr.contains("ce_type"), "{no_type:?}");
    client.batch_execute("UPDATE dead_letters SET event_id = NULL").await.unwrap();
    let no_id = oncebox(&database.url(), &arguments).await.ends_with(70);
    assert!(no_id.stderr.contains("mend its producer"), "{no_id:?}");
    assert_eq!(everything(&client).await, [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_discarded_letter_is_gone_and_its_event_stays_settled() {
    let database = pg_test::database().await;
    let client = database.client().await;
    refused_event(&client, WHOLE).await;
    let url = database.url();

    oncebox(&url, &["dead-letters", "discard", LETTER]).await.ends_with(64);
    oncebox(&url, &["dead-letters", "discard", LETTER, "--yes"]).await.ends_with(0);
    oncebox(&url, &["dead-letters", "discard", LETTER, "--yes"]).await.ends_with(1);

    assert_eq!(everything(&client).await, [0, 1, 0, 1]);
}
