//! The dedup window: what is older is put aside, and a topic that keeps more is refused.

use charge_consumer::issue_receipts::IssueReceipts;
use jiff::Timestamp;
use uuid::Uuid;

use crate::world::{Charge, World, id, old_id};

const KIND: (&str, &[u8]) = ("ce_type", b"ChargeCreated");
/// It does not say when the event was written.
const V4: &str = "3e6c6c55-4d4c-4a6b-8a0c-0c2c7f3a9f10";
/// In the year 10,000 or so.
const FUTURE: &str = "e6770000-0000-7000-8000-000000000001";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_time_that_the_inbox_cannot_tell_of_is_parked_and_one_that_it_has_is_a_duplicate()
 {
    let world = World::with_partitions(1).await;
    world.execute(&format!("INSERT INTO inbox VALUES ('charge-consumer', '{}')", old_id(1))).await;
    let payload = Charge::of_event(1).payload();
    let new = id(3).to_string();
    let (applied, old) = (old_id(1).to_string(), old_id(2).to_string());
    // The id tells, whatever the record says.
    let now = Timestamp::now().to_string();
    for id in [&applied, &old, V4, FUTURE, &new] {
        let headers = [("ce_id", id.as_bytes()), KIND, ("ce_time", now.as_bytes())];
        world.produce_raw(0, &headers, Some(payload.as_bytes())).await;
    }
    let consumer = world.start();

    world.eventually_committed(0, 5).await;

    assert_eq!(world.totals().await, (1, 4900));
    assert_eq!(consumer.outcomes(), (1.0, 1.0, 0.0));
    assert_eq!(consumer.metric("inbox_events_total{outcome=\"parked\"}"), 3.0);
    let letters = "SELECT event_id, reason FROM dead_letters ORDER BY source_offset";
    let rows = world.sql.query(letters, &[]).await.expect("dead letters");
    let parked: Vec<String> = rows.iter().map(|row| row.get::<_, Uuid>(0).to_string()).collect();
    assert_eq!(parked, [&old, V4, FUTURE]);
    assert!(rows.iter().all(|row| row.get::<_, &str>(1).contains("cannot be told")));
    // Not recorded: an operator who knows better can still have them applied.
    assert_eq!(world.count("inbox").await, 2);
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_does_not_cover_the_topic_is_refused_with_both_figures() {
    let world = World::with_partitions(1).await;
    world.produce(0, &Charge::of_event(1)).await;
    let env = [("ONCEBOX_INBOX_TOPIC_RETENTION", "8d")];

    let consumer = world.start_with(IssueReceipts, &env);
    let refused = consumer.task.await.expect("no panic").expect_err("a refusal").to_string();

    assert!(refused.contains("inbox.retention is 7d"), "{refused}");
    assert!(refused.contains("for 8d"), "{refused}");
    assert_eq!(world.count("inbox").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_does_not_tell_makes_the_consumer_not_ready_and_events_are_applied() {
    let world = World::with_partitions(1).await;
    world.produce(0, &Charge::of_event(1)).await;
    let consumer = world.start_asking_the_broker();

    world.eventually_committed(0, 1).await;

    assert_eq!(world.totals().await, (1, 4900));
    consumer.eventually_fails("dedup_window").await;
    assert_eq!(consumer.metric("inbox_dedup_window_seconds"), 604_800.0);
    assert_eq!(consumer.metric("inbox_topic_retention_seconds"), 0.0);
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_waits_for_its_partition_of_the_inbox_and_is_never_given_up_for_it() {
    let world = World::with_partitions(1).await;
    // As after months without a consumer: only what is long ago has a place.
    let drop = "DO $$ DECLARE one text; BEGIN
                FOR one IN SELECT partition FROM inbox_bounds WHERE partition <> 'inbox_first' LOOP
                    EXECUTE 'DROP TABLE ' || one;
                END LOOP; END $$";
    world.execute(drop).await;
    world.execute("ALTER TABLE inbox_consumers DISABLE TRIGGER keep_inbox").await;
    world.produce(0, &Charge::of_event(1)).await;
    let consumer = world.start();
    consumer.eventually_fails("applying").await;
    assert_eq!(world.count("dead_letters").await, 0);

    // Another consumer sees to it. This one must not have given the event up meanwhile.
    world.execute("ALTER TABLE inbox_consumers ENABLE TRIGGER keep_inbox").await;
    world.execute("INSERT INTO inbox_consumers VALUES ('another', '7 days')").await;
    world.eventually_committed(0, 1).await;

    assert_eq!(world.totals().await, (1, 4900));
    assert_eq!(world.count("dead_letters").await, 0);
    assert!(consumer.metric("inbox_keep_last_success_timestamp_seconds") > 0.0);
    consumer.stop().await;
}
