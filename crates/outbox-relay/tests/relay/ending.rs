//! How a relay ends, and what is left for the next.

use crate::rig::{NewRow, Rig, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_are_told_to_stop_leave_no_duplicates_and_no_leases() {
    let rig = Rig::new().await;
    let mut relays = vec![rig.run(&[]), rig.run(&[])];
    for round in 0..6 {
        let seen = rig.published().await;
        for n in 0..100 {
            rig.insert(&NewRow::of(&format!("a-{}", n % 25))).await;
        }
        // While there is work under way.
        eventually("they publish", async || rig.published().await > seen).await;
        relays.remove(0).stop().await;
        relays.push(rig.run(&[]));
        assert_eq!(relays.len(), 2, "round {round}");
    }
    eventually("nothing is pending", async || rig.pending().await == 0).await;
    for relay in relays {
        assert!(relay.metric("outbox_leases_lost_total") == 0.0);
        relay.stop().await;
    }
    assert_eq!(rig.records().await.len(), 600);
    let left = "SELECT (SELECT count(*) FROM outbox_buckets WHERE owner IS NOT NULL),
                       (SELECT count(*) FROM outbox_relays)";
    let left = rig.client.query_one(left, &[]).await.unwrap();
    assert_eq!((left.get::<_, i64>(0), left.get::<_, i64>(1)), (0, 0));
}

#[tokio::test]
async fn a_relay_killed_between_acknowledgement_and_mark_leaves_its_rows_to_be_published_again() {
    let rig = Rig::new().await;
    for n in 0..10 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    let mut killed = rig.member(&[]).await;
    killed.send_without_marking(10).await;
    let released = "UPDATE outbox_buckets SET leased_until = '-infinity'";
    drop(killed);
    rig.client.execute(released, &[]).await.unwrap();
    rig.client.execute("DELETE FROM outbox_relays", &[]).await.unwrap();
    assert_eq!(rig.published().await, 0);

    rig.member(&[]).await.until_drained(&rig).await;
    let records = rig.records().await;
    // One row of each aggregate twice, and no more.
    assert_eq!(records.len(), 30);
    for n in 0..10 {
        let key = format!("a-{n}");
        let ids: Vec<_> = records.iter().filter(|it| it.key == key).map(|it| it.id()).collect();
        assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
    }
}

#[tokio::test]
async fn a_drain_waits_for_what_kafka_has_and_sends_nothing_more() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    for _ in 0..3 {
        rig.insert(&NewRow::of("same")).await;
    }
    relay.until("the first is sent", async |pass| pass.sent == 1).await;
    relay.relay.drain();
    while !relay.relay.is_idle() {
        assert_eq!(relay.pass().await.sent, 0);
        relay.relay.rest().await;
    }
    assert_eq!((rig.published().await, rig.pending().await), (1, 2));
}
