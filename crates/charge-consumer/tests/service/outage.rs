//! What every event needs is away: partitions wait, and nothing is given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inbox::{Event, Handler, HandlerError};
use store::Transaction;

use crate::world::{Charge, World, eventually, id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_away_no_offset_moves_and_then_all_is_caught_up() {
    let world = World::with_partitions(2).await;
    let consumer = world.start();
    consumer.eventually_ready().await;
    world.allow_connections(false).await;
    world
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'charge-consumer'",
        )
        .await;
    for event in 0..10 {
        world.produce(i32::try_from(event % 2).unwrap(), &Charge::of_event(event)).await;
    }

    let retries = || consumer.metric("inbox_retries_total{cause=\"outage\"}");
    eventually("both partitions wait", || async {
        consumer.metric("inbox_waiting_partitions") == 2.0 && retries() >= 4.0
    })
    .await;
    consumer.eventually_fails("applying").await;
    consumer.eventually_fails("database").await;
    assert_eq!(world.committed("charge-consumer", 0).await, None);
    assert_eq!(world.committed("charge-consumer", 1).await, None);

    world.allow_connections(true).await;
    world.eventually_committed(0, 5).await;
    world.eventually_committed(1, 5).await;
    assert_eq!(world.totals().await, (10, 10 * 4900));
    assert_eq!(world.count("dead_letters").await, 0);
    // The partitions deliver again.
    world.produce(0, &Charge::of_event(10)).await;
    world.produce(1, &Charge::of_event(11)).await;
    world.eventually_count("receipts", 12).await;
    consumer.eventually_ready().await;
    consumer.stop().await;
}

/// Waits for something in events of partition 0, and has no effect.
struct Waits(Arc<AtomicBool>);

impl Handler for Waits {
    async fn handle(&self, _tx: &Transaction<'_>, events: &[&Event]) -> Result<(), HandlerError> {
        let away = self.0.load(Ordering::SeqCst);
        if away && events.iter().any(|event| event.record().partition == 0) {
            return Err(HandlerError::transient("the rates are not loaded yet"));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_waits_holds_up_no_other() {
    let world = World::with_partitions(2).await;
    world.produce(0, &Charge::of_event(0)).await;
    world.produce(1, &Charge::of_event(1)).await;
    let away = Arc::new(AtomicBool::new(true));
    let consumer = world.start_with(Waits(Arc::clone(&away)), &[]);

    world.eventually_committed(1, 1).await;
    // More than the attempts that an event gets: an outage does not use them up.
    eventually("it is tried again and again", || async {
        consumer.metric("inbox_retries_total{cause=\"outage\"}") >= 5.0
    })
    .await;
    world.produce(1, &Charge::of_event(2)).await;
    world.eventually_committed(1, 2).await;
    assert_eq!(world.committed("charge-consumer", 0).await, None);

    away.store(false, Ordering::SeqCst);
    world.eventually_committed(0, 1).await;
    assert_eq!(consumer.outcomes(), (3.0, 0.0, 0.0));
    consumer.stop().await;
}

/// Panics at one event.
struct Panics;

impl Handler for Panics {
    async fn handle(&self, _tx: &Transaction<'_>, events: &[&Event]) -> Result<(), HandlerError> {
        assert!(events.iter().all(|event| event.id() != id(1)), "a bug in the handler");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_does_not_stop_the_consumer() {
    let world = World::with_partitions(1).await;
    for event in 0..3 {
        world.produce(0, &Charge::of_event(event)).await;
    }
    let consumer = world.start_with(Panics, &[]);

    world.eventually_committed(0, 3).await;

    assert_eq!(consumer.outcomes(), (2.0, 0.0, 1.0));
    let row = world.sql.query_one("SELECT event_id, reason FROM dead_letters", &[]).await;
    let row = row.expect("one dead letter");
    assert_eq!(
        (row.get::<_, uuid::Uuid>(0), row.get::<_, &str>(1)),
        (id(1), "the handler panicked")
    );
    consumer.stop().await;
}
