//! What a relay costs while it has nothing to do: how often it asks the database, in statements a
//! minute, whatever the reason for its idleness.

use std::time::{Duration, Instant};

use crate::rig::{NewRow, Rig, eventually};

/// Reads every 100 ms are 600 a minute; sweeps, leases, gauges and retention come on top.
const STATEMENTS_PER_MINUTE_MAX: f64 = 1_200.0;
const OBSERVED: Duration = Duration::from_secs(4);

/// Transactions of the relays a minute. Each of their statements is one.
async fn transactions_per_minute(rig: &Rig) -> f64 {
    let start = Instant::now();
    let before = transactions(rig).await;
    tokio::time::sleep(OBSERVED).await;
    let after = transactions(rig).await;
    (after - before) * 60.0 / start.elapsed().as_secs_f64()
}

/// A backend tells of its transactions at most once a second.
async fn transactions(rig: &Rig) -> f64 {
    let sql = "SELECT (xact_commit + xact_rollback)::float8 FROM pg_stat_database
               WHERE datname = current_database()";
    rig.client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_idle_relay_asks_seldom() {
    let rig = Rig::new().await;
    let relay = rig.run(&[]);
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    // After a row, reads come often for two seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rate = transactions_per_minute(&rig).await;
    assert!(rate > 0.0 && rate < STATEMENTS_PER_MINUTE_MAX, "{rate} a minute");
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_without_buckets_asks_seldom() {
    let rig = Rig::new().await;
    let all = "UPDATE outbox_buckets SET owner = $1, leased_until = 'infinity'";
    rig.client.execute(all, &[&uuid::Uuid::now_v7()]).await.unwrap();
    let relay = rig.run(&[]);
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    let rate = transactions_per_minute(&rig).await;
    assert!(rate > 0.0 && rate < STATEMENTS_PER_MINUTE_MAX, "{rate} a minute");
    assert_eq!(relay.metric("outbox_buckets_owned"), 0.0);
    relay.stop().await;
}

/// With fewer rows to try with than there are buckets: the read of nothing was asked again at once.
#[tokio::test]
async fn a_relay_whose_kafka_is_away_asks_seldom() {
    let rig = Rig::new().await;
    let relay = rig.run(&[]);
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    rig.cluster.broker_down(1).unwrap();
    for n in 0..100 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    eventually("the breaker opens", async || relay.metric("outbox_breaker_open") > 0.0).await;
    let rate = transactions_per_minute(&rig).await;
    assert!(rate > 0.0 && rate < STATEMENTS_PER_MINUTE_MAX * 2.0, "{rate} a minute");
    rig.cluster.broker_up(1).unwrap();
    eventually("nothing is pending", async || rig.pending().await == 0).await;
    relay.stop().await;
}
