//! `oncebox outbox`.

use tokio_postgres::Client;

use crate::oncebox;

const IDS: [&str; 3] = [
    "018f0000-0000-7000-8000-000000000001",
    "018f0000-0000-7000-8000-000000000002",
    "018f0000-0000-7000-8000-000000000003",
];

/// Three events of one aggregate.
async fn events(client: &Client) {
    for (id, version) in IDS.iter().zip(1..) {
        let insert = format!(
            "INSERT INTO outbox (id, aggregate_id, aggregate_version, event_type, payload)
             VALUES ('{id}', 'a', {version}, 'Counted', 'canary-payload')"
        );
        client.batch_execute(&insert).await.unwrap();
    }
}

async fn park_first(client: &Client) {
    let park = format!(
        "UPDATE outbox SET parked_at = now(), last_error = 'too large' WHERE id = '{}'",
        IDS[0]
    );
    client.batch_execute(&park).await.unwrap();
}

async fn count(client: &Client, condition: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {condition}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn the_status_counts_what_waits_and_who_relays_it() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;

    let status =
        oncebox(&database.url(), &["outbox", "status", "--json"]).await.ends_with(0).json();

    assert_eq!(status["pending"], 2);
    assert_eq!(status["parked"], 1);
    assert_eq!(status["relaysAlive"], 0);
    assert_eq!(status["bucketsFree"], 32);
    oncebox(&database.url(), &["outbox", "status"]).await.ends_with(0);
}

#[tokio::test]
async fn rows_are_listed_by_state_and_filter_without_their_payload() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;
    let published = format!("UPDATE outbox SET published_at = now() WHERE id = '{}'", IDS[1]);
    client.batch_execute(&published).await.unwrap();
    let url = database.url();

    for (state, id) in ["parked", "published", "pending"].iter().zip(IDS) {
        let run = oncebox(&url, &["outbox", "list", "--state", state, "--json"]).await.ends_with(0);
        assert!(!run.stdout.contains("canary"), "{run:?}");
        let rows = run.json()["rows"].clone();
        assert_eq!(rows.as_array().unwrap().len(), 1, "{state}: {rows}");
        assert_eq!(rows[0]["id"], id);
    }
    let other = ["outbox", "list", "--aggregate", "b", "--json"];
    assert_eq!(oncebox(&url, &other).await.ends_with(0).json()["rows"], serde_json::json!([]));
    let text = oncebox(&url, &["outbox", "list", "--state", "parked"]).await.ends_with(0);
    assert!(text.stdout.contains("too large"), "{text:?}");
}

#[tokio::test]
async fn a_parked_row_that_breaks_the_contract_cannot_be_retried_and_is_not_quoted() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;
    client
        .batch_execute("UPDATE outbox SET event_type = '' WHERE parked_at IS NOT NULL")
        .await
        .unwrap();

    let run = oncebox(&database.url(), &["outbox", "retry", "--all"]).await.ends_with(70);

    assert!(run.stderr.contains("docs/OUTBOX.md"), "{run:?}");
    let payload = "canary-payload".bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(!run.stderr.contains(&payload[..8]), "{run:?}");
    assert_eq!(count(&client, "outbox WHERE parked_at IS NOT NULL").await, 1);
}

#[tokio::test]
async fn published_rows_are_listed_in_the_order_and_within_the_times_of_publishing() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    for (id, hour) in [(IDS[0], 3), (IDS[1], 1), (IDS[2], 2)] {
        let mark =
            format!("UPDATE outbox SET published_at = '2026-01-01 0{hour}:00Z' WHERE id = '{id}'");
        client.batch_execute(&mark).await.unwrap();
    }
    for (times, expected) in [
        (&[][..], &[IDS[1], IDS[2], IDS[0]][..]),
        (&["--from", "2026-01-01T02:00:00Z"][..], &[IDS[2], IDS[0]][..]),
        (&["--to", "2026-01-01T02:00:00Z"][..], &[IDS[1]][..]),
    ] {
        let arguments = [&["outbox", "list", "--state", "published", "--json"], times].concat();
        let answer = oncebox(&database.url(), &arguments).await.ends_with(0).json();
        let rows = answer["rows"].as_array().unwrap();
        let ids: Vec<_> = rows.iter().map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{times:?}");
    }
}

#[tokio::test]
async fn a_list_longer_than_a_page_is_whole() {
    let database = pg_test::database().await;
    let many = "INSERT INTO outbox (aggregate_id, event_type, payload, published_at)
                SELECT 'a' || n, 'Counted', '', CASE WHEN n % 2 = 0 THEN now() END
                FROM generate_series(1, 12001) AS n";
    database.client().await.batch_execute(many).await.unwrap();
    for (state, expected) in [("pending", 6001), ("published", 6000)] {
        let arguments = ["outbox", "list", "--state", state, "--limit", "10000", "--json"];
        let answer = oncebox(&database.url(), &arguments).await.ends_with(0).json();
        assert_eq!(answer["rows"].as_array().unwrap().len(), expected);
        assert_eq!(answer["more"], false);
    }
}

#[tokio::test]
async fn a_row_is_shown_and_its_payload_only_when_it_is_asked_for() {
    let database = pg_test::database().await;
    events(&database.client().await).await;
    let url = database.url();

    let hidden = oncebox(&url, &["outbox", "show", IDS[0]]).await.ends_with(0);
    assert!(hidden.stdout.contains("--payload"), "{hidden:?}");
    assert!(!hidden.stdout.contains("canary-payload"), "{hidden:?}");
    let shown = oncebox(&url, &["outbox", "show", IDS[0], "--payload", "--json"]).await;
    assert_eq!(shown.ends_with(0).json()["payload"], "canary-payload");
    oncebox(&url, &["outbox", "show", "018f0000-0000-7000-8000-0000000000ff"]).await.ends_with(1);
}

#[tokio::test]
async fn a_retried_row_is_pending_again_and_the_action_is_recorded_with_it() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;
    let url = database.url();

    let dry = oncebox(&url, &["outbox", "retry", IDS[0], "--dry-run", "--json"]).await.ends_with(0);
    assert_eq!(dry.json()["dryRun"], true);
    assert_eq!(count(&client, "outbox WHERE parked_at IS NOT NULL").await, 1);
    assert_eq!(count(&client, "operator_actions").await, 0);

    oncebox(&url, &["outbox", "retry", IDS[0]]).await.ends_with(0);

    assert_eq!(count(&client, "outbox WHERE parked_at IS NOT NULL").await, 0);
    let action = "SELECT operator, action, rows_changed FROM operator_actions";
    let action = client.query_one(action, &[]).await.unwrap();
    assert_eq!(action.get::<_, &str>(0), "ada");
    assert_eq!(action.get::<_, &str>(1), "outbox retry");
    assert_eq!(action.get::<_, i64>(2), 1);
    // The bucket is free at once: no relay has to wait.
    assert_eq!(count(&client, "outbox_buckets WHERE owner IS NOT NULL").await, 0);
    // And there is nothing left to do.
    oncebox(&url, &["outbox", "retry", "--all"]).await.ends_with(1);
}

#[tokio::test]
async fn a_retry_waits_out_the_lease_of_the_relay_that_has_the_bucket() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;
    let lease = "UPDATE outbox_buckets SET owner = gen_random_uuid(), epoch = 1,
                 leased_until = clock_timestamp() + interval '2 s'";
    client.batch_execute(lease).await.unwrap();

    oncebox(&database.url(), &["outbox", "retry", "--all"]).await.ends_with(0);

    // The row's bucket alone was taken, and only once its lease had ended.
    assert_eq!(count(&client, "outbox_buckets WHERE owner IS NULL AND epoch = 2").await, 1);
    let early =
        "outbox_buckets b, operator_actions a WHERE b.owner IS NOT NULL AND a.at < b.leased_until";
    assert_eq!(count(&client, early).await, 0);
}

#[tokio::test]
async fn a_parked_row_waits_and_a_discarded_one_is_kept_elsewhere() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    let url = database.url();

    oncebox(&url, &["outbox", "park", IDS[0], "--reason", "wrong amount"]).await.ends_with(0);
    assert_eq!(count(&client, "outbox WHERE last_error = 'wrong amount'").await, 1);
    // Not without --yes, and not what is not parked.
    let refused = oncebox(&url, &["outbox", "discard", IDS[0]]).await.ends_with(64);
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    oncebox(&url, &["outbox", "discard", IDS[1], "--yes"]).await.ends_with(1);
    assert_eq!(count(&client, "outbox").await, 3);

    oncebox(&url, &["outbox", "discard", IDS[0], "--yes"]).await.ends_with(0);

    assert_eq!(count(&client, "outbox").await, 2);
    let kept = "outbox_discarded WHERE payload = 'canary-payload' AND last_error = 'wrong amount'";
    assert_eq!(count(&client, kept).await, 1);
    assert_eq!(count(&client, "operator_actions").await, 2);
}

#[tokio::test]
async fn a_replayed_row_is_pending_with_its_id_and_a_header() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    let publish = "UPDATE outbox SET published_at = '2026-11-30T12:00:00Z', published_topic = 't',
                   published_partition = 0, published_offset = 1";
    client.batch_execute(publish).await.unwrap();
    let url = database.url();

    oncebox(&url, &["outbox", "replay", "--yes"]).await.ends_with(64);
    let window = ["--from", "2026-11-30T12:00:00Z", "--to", "2026-11-30T12:00:01Z"];
    let arguments = [&["outbox", "replay"][..], &window].concat();
    oncebox(&url, &arguments).await.ends_with(64);
    let before = ["outbox", "replay", "--to", "2026-11-30T12:00:00Z", "--yes"];
    oncebox(&url, &before).await.ends_with(1);
    assert_eq!(count(&client, "outbox WHERE published_at IS NULL").await, 0);

    oncebox(&url, &[&arguments[..], &["--yes"]].concat()).await.ends_with(0);

    let pending = "outbox WHERE published_at IS NULL AND published_topic IS NULL";
    assert_eq!(count(&client, pending).await, 3);
    let marked = "outbox o JOIN operator_actions a ON o.headers->>'replay' = a.id::text";
    assert_eq!(count(&client, marked).await, 3);
}

#[tokio::test]
async fn a_change_needs_a_name_to_be_recorded_under() {
    let database = pg_test::database().await;
    let client = database.client().await;
    events(&client).await;
    park_first(&client).await;
    let url = database.url();

    let nobody = crate::oncebox_as(None, &url, &["outbox", "retry", "--all"]).await.ends_with(64);
    assert!(nobody.stderr.contains("--operator"), "{nobody:?}");
    let named = ["outbox", "retry", "--all", "--operator", "grace"];
    crate::oncebox_as(None, &url, &named).await.ends_with(0);
    assert_eq!(count(&client, "operator_actions WHERE operator = 'grace'").await, 1);
}
