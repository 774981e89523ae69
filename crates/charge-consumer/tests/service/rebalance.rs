//! Members of the group come and go while there is work.

use crate::world::{Charge, World, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_join_and_leave_under_load_change_no_total() {
    const EVENTS: u32 = 400;
    let world = World::with_partitions(4).await;
    let produce = async |events: std::ops::Range<u32>| {
        for event in events {
            world.produce(i32::try_from(event % 4).unwrap(), &Charge::of_event(event)).await;
        }
    };
    let first = world.start();
    produce(0..100).await;
    let second = world.start();
    eventually("both have partitions", || async {
        produce(100..120).await;
        first.metric("inbox_assigned_partitions") == 2.0
            && second.metric("inbox_assigned_partitions") == 2.0
    })
    .await;
    produce(120..300).await;
    first.stop().await;
    produce(300..EVENTS).await;

    world.eventually_count("receipts", i64::from(EVENTS)).await;
    eventually("the one that is left has all partitions and no lag", || async {
        second.metric("inbox_assigned_partitions") == 4.0 && second.metric("inbox_lag") == 0.0
    })
    .await;
    assert_eq!(world.totals().await, (i64::from(EVENTS), i64::from(EVENTS) * 4900));
    second.stop().await;
}
