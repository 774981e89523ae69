//! The order of each aggregate, and that no row is passed over.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::rig::{NewRow, Record, Rig, eventually, insert};

/// Short leases, so that a killed relay's buckets move within the test.
const SHORT_LEASE: [(&str, &str); 2] =
    [("ONCEBOX_RELAY_LEASE", "1s"), ("ONCEBOX_KAFKA_MESSAGE_TIMEOUT", "700ms")];

/// Ids in the order of first appearance, by key.
fn first_appearances(records: &[Record]) -> BTreeMap<String, Vec<String>> {
    let mut seen = HashSet::new();
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for record in records {
        if seen.insert(record.id().to_owned()) {
            order.entry(record.key.clone()).or_default().push(record.id().to_owned());
        }
    }
    order
}

/// Ids in the order of seq, by aggregate.
async fn written(rig: &Rig) -> BTreeMap<String, Vec<String>> {
    let rows = rig.client.query("SELECT aggregate_id, id FROM outbox ORDER BY seq", &[]).await;
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.unwrap() {
        order.entry(row.get(0)).or_default().push(row.get::<_, Uuid>(1).to_string());
    }
    order
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_keep_each_aggregate_in_order_while_one_is_killed_and_another_comes() {
    const AGGREGATES: usize = 40;
    const ROUNDS: usize = 15;
    let rig = Rig::new().await;
    let killed = rig.run(&SHORT_LEASE);
    let first = rig.run(&SHORT_LEASE);
    let mut second = None;
    let mut killed = Some(killed);
    for round in 0..ROUNDS {
        for aggregate in 0..AGGREGATES {
            rig.insert(&NewRow::of(&format!("a-{aggregate}"))).await;
        }
        match round {
            // While both are at work.
            5 => {
                eventually("some rows are published", async || rig.published().await > 50).await;
                killed.take().unwrap().kill().await;
            }
            10 => second = Some(rig.run(&SHORT_LEASE)),
            _ => {}
        }
    }
    eventually("nothing is pending", async || rig.pending().await == 0).await;
    first.stop().await;
    second.unwrap().stop().await;

    let records = rig.records().await;
    assert_eq!(first_appearances(&records), written(&rig).await);
    // At most the one row that was acknowledged and not marked when its relay was killed.
    let mut copies: HashMap<&str, usize> = HashMap::new();
    for record in &records {
        *copies.entry(record.id()).or_default() += 1;
    }
    let mut twice: HashMap<&str, usize> = HashMap::new();
    for record in &records {
        if copies[record.id()] > 1 {
            *twice.entry(&record.key).or_default() += 1;
        }
    }
    assert!(twice.values().all(|count| *count <= 2), "more than one row twice: {twice:?}");
}

#[tokio::test]
async fn two_relays_without_faults_publish_each_row_once() {
    let rig = Rig::new().await;
    let relays = [rig.run(&[]), rig.run(&[])];
    for n in 0..500 {
        rig.insert(&NewRow::of(&format!("a-{}", n % 50))).await;
    }
    eventually("nothing is pending", async || rig.pending().await == 0).await;
    for relay in relays {
        assert!(relay.metric("outbox_marks_unmatched_total") == 0.0);
        relay.stop().await;
    }
    let records = rig.records().await;
    assert_eq!(records.len(), 500);
    assert_eq!(first_appearances(&records), written(&rig).await);
}

#[tokio::test]
async fn a_row_that_is_committed_after_later_ones_were_published_is_published() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    let mut slow = rig.database.client().await;
    let transaction = slow.transaction().await.unwrap();
    // Two aggregates of one bucket, since how far was read is known bucket by bucket.
    let insert = "INSERT INTO outbox (aggregate_id, event_type, payload)
                  SELECT 'a-' || n, 'E', '' FROM generate_series(1, 1000) n
                  WHERE hashtextextended('a-' || n, 0) & 31 = 7
                  ORDER BY n OFFSET $1 LIMIT 1
                  RETURNING seq";
    let early: i64 = transaction.query_one(insert, &[&0_i64]).await.unwrap().get(0);
    let late: i64 = rig.client.query_one(insert, &[&1_i64]).await.unwrap().get(0);
    assert!(early < late);

    // For so long that reads no longer look back to it: only the sweep finds it.
    let started = Instant::now();
    let long = Duration::from_millis(700);
    let what = "the later row is published";
    relay.until(what, async |_| rig.published().await == 1 && started.elapsed() > long).await;
    transaction.commit().await.unwrap();
    relay.until("both are published", async |_| rig.published().await == 2).await;
    assert_eq!(rig.records().await.len(), 2);
}

#[tokio::test]
async fn a_later_row_of_an_aggregate_waits_for_the_mark_of_the_one_before() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    for _ in 0..3 {
        rig.insert(&NewRow::of("same")).await;
    }
    rig.insert(&NewRow::of("other")).await;

    let mut sent = Vec::new();
    relay
        .until("all is published", async |pass| {
            sent.push(pass.sent);
            // Never more rows with Kafka or unmarked than aggregates.
            let published: i64 = rig.published().await;
            assert!(sent.iter().sum::<usize>() <= 2 + usize::try_from(published).unwrap());
            published == 4
        })
        .await;
    assert_eq!(sent.iter().sum::<usize>(), 4);
}

#[tokio::test]
async fn a_busy_aggregate_does_not_hold_up_the_others() {
    let rig = Rig::new().await;
    // Far more than the memory has room for.
    let sql = "INSERT INTO outbox (aggregate_id, event_type, payload)
               SELECT 'busy', 'E', '' FROM generate_series(1, 2000)";
    rig.client.execute(sql, &[]).await.unwrap();
    for n in 0..100 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    let mut relay = rig
        .member(&[("ONCEBOX_RELAY_IN_FLIGHT_ROWS", "400"), ("ONCEBOX_RELAY_BATCH", "100")])
        .await;
    let others = "SELECT count(*) FILTER (WHERE aggregate_id <> 'busy' AND published_at IS NULL),
                         count(*) FILTER (WHERE aggregate_id = 'busy' AND published_at IS NULL)
                  FROM outbox";
    let mut busy_left: i64 = 0;
    relay
        .until("the others are published", async |_| {
            let row = rig.client.query_one(others, &[]).await.unwrap();
            busy_left = row.get(1);
            row.get::<_, i64>(0) == 0
        })
        .await;
    assert!(busy_left > 1000, "they waited for it: {busy_left} of its rows were left");
    // And the busy one itself goes on past what fits into memory.
    relay
        .until("it goes on", async |_| {
            rig.client.query_one(others, &[]).await.unwrap().get::<_, i64>(1) < 1400
        })
        .await;
    let mut busy = rig.records().await;
    busy.retain(|record| record.key == "busy");
    let order = &written(&rig).await["busy"];
    assert!(busy.iter().map(|record| record.id()).eq(order[..busy.len()].iter()));
}

#[tokio::test]
async fn a_client_queue_that_is_full_only_slows_down() {
    let rig = Rig::new().await;
    for n in 0..60 {
        rig.insert(&NewRow::of(&format!("a-{}", n % 20))).await;
    }
    rig.member(&[("ONCEBOX_KAFKA_QUEUE_RECORDS", "1")]).await.until_drained(&rig).await;
    let records = rig.records().await;
    assert_eq!(records.len(), 60);
    assert_eq!(first_appearances(&records), written(&rig).await);
}

#[tokio::test]
async fn rows_of_any_size_pass_through_little_memory() {
    let rig = Rig::new().await;
    let payload = vec![0; 400_000];
    let other = rig.database.client().await;
    for n in 0..20 {
        insert(&other, &NewRow { payload: &payload, ..NewRow::of(&format!("a-{n}")) }).await;
    }
    let mut relay = rig.member(&[("ONCEBOX_RELAY_IN_FLIGHT_BYTES", "1MiB")]).await;
    relay
        .until("all is published", async |pass| {
            // Three of them are more than the limit: a read ends with the one that passes it.
            assert!(pass.read <= 3, "{} rows of 400 kB in one read", pass.read);
            rig.pending().await == 0
        })
        .await;
}
