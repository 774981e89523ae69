//! The inbox in its partitions: made ahead, forgotten whole, and never new again.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use pg_test::TestDatabase;
use store::inbox::{self, Entry, Recorded};
use store::migrate::{MIGRATIONS, run, run_these};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::pool;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An id of so many days ago, or ahead.
async fn id(client: &Client, days: i32) -> Uuid {
    let sql = "SELECT uuid_v7_from(now() - $1::float8 * interval '1 day')";
    client.query_one(sql, &[&f64::from(days)]).await.unwrap().get(0)
}

async fn partitions(client: &Client) -> Vec<String> {
    let sql = "SELECT partition FROM inbox_bounds ORDER BY ends";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// As if the first partition had ended so many days ago.
async fn first_ended(client: &Client, days: i32) {
    let sql = format!(
        "DO $$ BEGIN
             ALTER TABLE inbox DETACH PARTITION inbox_first;
             EXECUTE format('ALTER TABLE inbox ATTACH PARTITION inbox_first
                             FOR VALUES FROM (MINVALUE) TO (%L)',
                            uuid_v7_from(now() - interval '{days} days'));
         END $$"
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn keep(client: &Client, consumer: &str, days: i32) {
    let sql = format!(
        "SET ROLE oncebox_consumer;
         INSERT INTO inbox_consumers VALUES ('{consumer}', '{days} days')
         ON CONFLICT (consumer) DO UPDATE SET seen_at = clock_timestamp();
         RESET ROLE"
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn record(database: &TestDatabase, event: Uuid, days: i64, window: Duration) -> Recorded {
    let mut connection = pool(database).get().await.unwrap();
    let tx = connection.transaction().await.unwrap();
    let written = Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
    let entries = [Entry { event, written: Some(written) }];
    let recorded = inbox::record(&tx, "receipts", &entries, window).await.unwrap();
    tx.commit().await.unwrap();
    recorded
}

#[tokio::test]
async fn an_inbox_from_before_its_partitions_stays_what_it_was() {
    let database = pg_test::empty_database().await;
    let client = database.client().await;
    let before = MIGRATIONS.iter().position(|one| one.name.contains("inbox_partitions")).unwrap();
    run_these(&database.url(), &MIGRATIONS[..before]).await.unwrap();
    let write = "INSERT INTO inbox (consumer, event_id) SELECT 'receipts', uuid_v7()
                 FROM generate_series(1, 3)";
    client.batch_execute(write).await.unwrap();
    let read = "SELECT event_id, processed_at, xmin::text FROM inbox ORDER BY event_id";
    let row = |row: &tokio_postgres::Row| -> (Uuid, Timestamp, String) {
        (row.get(0), row.get(1), row.get(2))
    };
    let old: Vec<_> = client.query(read, &[]).await.unwrap().iter().map(row).collect();

    run(&database.url()).await.unwrap();

    let new: Vec<_> = client.query(read, &[]).await.unwrap().iter().map(row).collect();
    assert_eq!(new, old);
    // As the binary before this one writes it, for weeks to come.
    let again = "INSERT INTO inbox (consumer, event_id)
                 SELECT consumer, event_id FROM inbox
                 UNION ALL SELECT 'receipts', uuid_v7_from(now() + day * interval '1 day')
                 FROM generate_series(1, 20) AS day
                 ON CONFLICT DO NOTHING";
    assert_eq!(client.execute(again, &[]).await.unwrap(), 20);
}

#[tokio::test]
async fn an_id_has_a_place_for_weeks_ahead_and_none_beyond() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let insert = "INSERT INTO inbox (consumer, event_id) VALUES ('receipts', $1)";
    for days in [900, 7, 0, -7, -14, -20] {
        client.execute(insert, &[&id(&client, days).await]).await.unwrap();
    }
    let beyond = client.execute(insert, &[&id(&client, -40).await]).await.unwrap_err();
    assert_eq!(beyond.code(), Some(&SqlState::CHECK_VIOLATION));

    // Consumers that start at the same moment after a long time without any.
    let latest = partitions(&client).await.pop().unwrap();
    client.batch_execute(&format!("DROP TABLE {latest}")).await.unwrap();
    let pool = pool(&database);
    let connections = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let (one, two) = tokio::join!(
        inbox::keep(&connections.0, "one", 7 * DAY),
        inbox::keep(&connections.1, "two", 7 * DAY),
    );
    one.unwrap();
    two.unwrap();
    assert_eq!(partitions(&client).await.pop().unwrap(), latest);
}

#[tokio::test]
async fn a_partition_goes_when_no_consumer_needs_it_and_its_ids_are_never_new_again() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let old = id(&client, 40).await;
    first_ended(&client, 30).await;
    assert_eq!(record(&database, old, 40, 60 * DAY).await.new, HashSet::from([old]));

    keep(&client, "longest", 60).await;
    keep(&client, "receipts", 7).await;
    assert!(partitions(&client).await.contains(&"inbox_first".into()), "one needs it");
    let gone = "UPDATE inbox_consumers SET seen_at = now() - interval '61 days'
                WHERE consumer = 'longest'";
    client.batch_execute(gone).await.unwrap();
    keep(&client, "receipts", 7).await;
    assert!(!partitions(&client).await.contains(&"inbox_first".into()), "nobody needs it");

    // Whatever inbox.retention is set to afterwards.
    let recorded = record(&database, old, 40, 60 * DAY).await;
    assert_eq!((recorded.new.len(), recorded.untold), (0, HashSet::from([old])));
}

#[tokio::test]
async fn a_transaction_that_reads_the_inbox_puts_off_the_drop_and_not_the_making() {
    let database = pg_test::database().await;
    let client = database.client().await;
    first_ended(&client, 30).await;
    let latest = partitions(&client).await.pop().unwrap();
    client.batch_execute(&format!("DROP TABLE {latest}")).await.unwrap();
    let reader = database.client().await;
    reader.batch_execute("BEGIN; SELECT FROM inbox").await.unwrap();

    keep(&client, "receipts", 7).await;

    assert!(partitions(&client).await.contains(&latest));
    assert!(partitions(&client).await.contains(&"inbox_first".into()));
    reader.batch_execute("COMMIT").await.unwrap();
    keep(&client, "receipts", 7).await;
    assert!(!partitions(&client).await.contains(&"inbox_first".into()));
}

#[tokio::test]
async fn an_event_from_the_future_is_not_recorded() {
    let database = pg_test::database().await;
    let client = database.client().await;
    let (soon, later) = (id(&client, 0).await, id(&client, -2).await);
    assert_eq!(record(&database, soon, 0, DAY).await.new, HashSet::from([soon]));
    assert_eq!(record(&database, later, -2, DAY).await.untold, HashSet::from([later]));
}
