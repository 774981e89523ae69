//! Published rows go when their time has come, and no other row ever does.

use std::time::Duration;

use outbox_relay::Retention;
use telemetry::prometheus::Registry;

use crate::rig::{Rig, eventually};

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl Rig {
    /// A row in this state that was written so many days ago.
    async fn row(&self, aggregate: &str, days: i32, published: &str, parked: &str) {
        let sql = format!(
            "INSERT INTO outbox (aggregate_id, event_type, payload, created_at, published_at, parked_at)
             VALUES ('{aggregate}', 'Counted', '', now() - interval '{days} days', {published}, {parked})"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    async fn old_published_rows(&self, count: i32) {
        let sql = format!(
            "INSERT INTO outbox (aggregate_id, event_type, payload, published_at)
             SELECT 'a' || n, 'Counted', '', now() - interval '8 days' + make_interval(secs => n / 10)
             FROM generate_series(1, {count}) AS n"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    async fn left(&self) -> Vec<String> {
        let sql = "SELECT aggregate_id FROM outbox ORDER BY seq";
        self.client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    fn retention(&self, batch: &str) -> (Retention, Registry) {
        let settings = self.settings(&[("ONCEBOX_RELAY_RETENTION_BATCH", batch)]);
        let registry = Registry::new();
        let made = Retention::new(&settings.retention, &settings.database, &registry).unwrap();
        (made, registry)
    }
}

#[tokio::test]
async fn published_rows_go_by_the_time_of_publishing_and_pending_and_parked_ones_never_do() {
    let rig = Rig::new().await;
    let days_ago = |days: i32| format!("now() - interval '{days} days'");
    for n in 0..5 {
        rig.row(&format!("old-{n}"), 9, &days_ago(8), "NULL").await;
    }
    rig.row("long in the outbox", 30, &days_ago(1), "NULL").await;
    rig.row("pending", 3000, "NULL", "NULL").await;
    rig.row("parked", 3000, "NULL", &days_ago(2900)).await;
    rig.row("published and parked", 3000, &days_ago(2900), &days_ago(2900)).await;

    let (retention, registry) = rig.retention("2");
    retention.run_once(WEEK).await.unwrap();

    let kept = ["long in the outbox", "pending", "parked", "published and parked"];
    assert_eq!(rig.left().await, kept);
    let deleted = registry.gather().into_iter().find(|it| it.name().ends_with("_deleted_total"));
    assert_eq!(deleted.unwrap().get_metric()[0].get_counter().get_value(), 5.0);
    // It was announced, whatever a relay with a longer retention says later.
    retention.run_once(2 * WEEK).await.unwrap();
    let announced =
        "SELECT now() - removed_before < interval '7 days 1 hour' FROM outbox_retention";
    assert!(rig.client.query_one(announced, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn a_run_that_is_cut_off_keeps_its_batches_and_the_next_one_goes_on() {
    let rig = Rig::new().await;
    rig.old_published_rows(100).await;
    let fail = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE 'cut off'; END $$;
         CREATE TRIGGER fail BEFORE DELETE ON outbox
         FOR EACH ROW WHEN (old.aggregate_id = 'a55') EXECUTE FUNCTION fail()";
    rig.client.batch_execute(fail).await.unwrap();
    let (retention, _) = rig.retention("10");

    retention.run_once(WEEK).await.unwrap_err();

    let left = rig.left().await.len();
    assert!((41..100).contains(&left), "{left}");
    rig.client.batch_execute("DROP TRIGGER fail ON outbox").await.unwrap();
    retention.run_once(WEEK).await.unwrap();
    assert_eq!(rig.left().await.len(), 0);
}

#[tokio::test]
async fn relays_that_delete_at_once_do_not_wait_for_each_other_nor_for_an_operator() {
    let rig = Rig::new().await;
    rig.old_published_rows(300).await;
    rig.client
        .batch_execute("BEGIN; UPDATE outbox SET headers = '{}' WHERE aggregate_id = 'a7'")
        .await
        .unwrap();
    let relays = [rig.retention("10").0, rig.retention("10").0, rig.retention("10").0];
    let [one, two, three] = &relays;

    // None of them fails on a lock or a deadlock.
    let (a, b, c) = tokio::join!(one.run_once(WEEK), two.run_once(WEEK), three.run_once(WEEK));

    a.and(b).and(c).unwrap();
    rig.client.batch_execute("COMMIT").await.unwrap();
    assert!(rig.left().await.contains(&"a7".to_owned()));
    // What was left to others is found by the next run.
    one.run_once(WEEK).await.unwrap();
    assert_eq!(rig.left().await.len(), 0);
}

#[tokio::test]
async fn a_running_relay_deletes_by_default_and_tells_when_it_did() {
    let rig = Rig::new().await;
    rig.old_published_rows(5).await;
    let relay = rig.run(&[]);

    eventually("the old rows are gone", async || rig.left().await.is_empty()).await;

    eventually("it says so", async || {
        relay.metric("outbox_retention_last_success_timestamp_seconds") > 0.0
    })
    .await;
    assert_eq!(relay.metric("outbox_retention_deleted_total"), 5.0);
    assert_eq!(relay.metric("outbox_retention_seconds"), WEEK.as_secs_f64());
    relay.stop().await;
}

#[tokio::test]
async fn what_is_to_be_kept_for_ever_is() {
    let rig = Rig::new().await;
    rig.old_published_rows(5).await;
    let keeping = rig.run(&[("ONCEBOX_RELAY_RETENTION", "never")]);
    let pending = rig.insert(&crate::rig::NewRow::of("new")).await;
    let is_published = "SELECT published_at IS NOT NULL FROM outbox WHERE id = $1";
    eventually("it relays", async || {
        rig.client.query_one(is_published, &[&pending]).await.unwrap().get(0)
    })
    .await;
    keeping.stop().await;

    assert_eq!(rig.left().await.len(), 6);
    let refused = settings::load::<outbox_relay::Settings>(
        None,
        &[
            ("DATABASE_URL", "postgres://u@localhost/d"),
            ("KAFKA_BROKERS", "localhost:9092"),
            ("ONCEBOX_RELAY_RETENTION", "10m"),
        ],
    );
    assert!(refused.unwrap_err().to_string().contains("relay.retention"));
}
