//! One effect per event, however often and wherever it comes.

use charge_consumer::issue_receipts::IssueReceipts;
use jiff::civil::date;
use store::receipts::{self, Receipt};
use store::{DatabaseSettings, Pool};

use crate::world::{Charge, World, eventually, id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_delivered_three_times_has_one_receipt_and_counts_once() {
    let world = World::with_partitions(1).await;
    let charge = Charge::of_event(1);
    // Two in one batch, and one after it.
    world.produce(0, &charge).await;
    world.produce(0, &charge).await;
    let consumer = world.start();
    world.eventually_committed(0, 2).await;
    world.produce(0, &charge).await;
    world.produce(0, &Charge::of_event(2)).await;

    world.eventually_committed(0, 4).await;

    assert_eq!(world.count("receipts").await, 2);
    assert_eq!(world.count("inbox WHERE consumer = 'charge-consumer'").await, 2);
    assert_eq!(world.totals().await, (2, 9800));
    assert_eq!(consumer.outcomes(), (2.0, 2.0, 0.0));
    consumer.eventually_ready().await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_on_two_partitions_and_in_two_consumers_at_once_have_one_effect() {
    let world = World::with_partitions(2).await;
    world.hold().await;
    world.produce(0, &Charge::of_event(1)).await;
    world.produce(1, &Charge::of_event(1)).await;
    // Two groups, so that both get all copies; one name, so that both mean the same inbox.
    let group = |name| [("ONCEBOX_KAFKA_GROUP", name), ("ONCEBOX_CONSUMER_NAME", "both")];
    let first = world.start_with(IssueReceipts, &group("first"));
    let second = world.start_with(IssueReceipts, &group("second"));

    // One at its effect; the other, and perhaps the first one's own other copy, behind its row.
    eventually("two transactions wait", || async { world.waiting().await >= 2 }).await;
    world.release().await;
    eventually("all copies are settled", || async {
        let (first, second) = (first.outcomes(), second.outcomes());
        first.0 + first.1 + second.0 + second.1 == 4.0
    })
    .await;

    assert_eq!(first.outcomes().0 + second.outcomes().0, 1.0);
    assert_eq!(world.count("receipts").await, 1);
    assert_eq!(world.totals().await, (1, 4900));
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_dies_before_its_commit_leaves_nothing_and_the_next_one_applies_the_event()
{
    let world = World::with_partitions(1).await;
    world.hold().await;
    world.produce(0, &Charge::of_event(1)).await;
    let dying = world.start();
    world.eventually_waiting().await;

    dying.crash().await;
    world.release().await;
    eventually("its transaction is gone", || async {
        let open = "pg_stat_activity WHERE xact_start IS NOT NULL
                    AND datname = current_database() AND pid <> pg_backend_pid()";
        world.count(open).await == 0
    })
    .await;
    assert_eq!(world.count("receipts").await + world.count("inbox").await, 0);
    assert_eq!(world.committed("charge-consumer", 0).await, None);

    let next = world.start();
    world.eventually_committed(0, 1).await;
    assert_eq!(world.count("receipts").await, 1);
    assert_eq!(world.totals().await, (1, 4900));
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_dies_between_its_commit_and_its_offset_gets_the_event_again_as_a_duplicate()
 {
    let world = World::with_partitions(1).await;
    world.refuse_offsets();
    world.produce(0, &Charge::of_event(1)).await;
    let dying = world.start();
    world.eventually_count("receipts", 1).await;
    dying.crash().await;

    let next = world.start();
    eventually("the event comes again", || async { next.outcomes().1 == 1.0 }).await;
    assert_eq!(world.committed("charge-consumer", 0).await, None);
    world.allow_offsets();
    world.eventually_committed(0, 1).await;

    assert_eq!(next.outcomes(), (0.0, 1.0, 0.0));
    assert_eq!(world.count("receipts").await, 1);
    assert_eq!(world.totals().await, (1, 4900));
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_is_committed_only_after_the_effect_and_a_stop_finishes_what_is_in_work() {
    let world = World::with_partitions(1).await;
    world.hold().await;
    world.produce(0, &Charge::of_event(1)).await;
    let consumer = world.start();
    world.eventually_waiting().await;

    consumer.stop.cancel();
    // The stop has been seen by nobody but a transaction that stands still.
    assert_eq!(world.committed("charge-consumer", 0).await, None);
    assert!(!consumer.task.is_finished());
    world.release().await;
    consumer.stop().await;

    assert_eq!(world.count("receipts").await, 1);
    assert_eq!(world.committed("charge-consumer", 0).await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_that_are_lost_bring_every_event_again_and_change_nothing() {
    let world = World::with_partitions(2).await;
    for event in 0..20 {
        world.produce(i32::try_from(event % 2).unwrap(), &Charge::of_event(event)).await;
    }
    let before = world.start();
    world.eventually_committed(0, 10).await;
    world.eventually_committed(1, 10).await;
    before.stop().await;

    // Another group has no offsets, as one whose offsets have expired.
    let env = [("ONCEBOX_KAFKA_GROUP", "after"), ("ONCEBOX_CONSUMER_NAME", "charge-consumer")];
    let after = world.start_with(IssueReceipts, &env);
    eventually("all come again", || async { after.outcomes().1 == 20.0 }).await;

    assert_eq!(after.outcomes(), (0.0, 20.0, 0.0));
    assert_eq!(world.totals().await, (20, 20 * 4900));
    after.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_charge_that_succeeded_has_an_effect_and_every_event_is_recorded() {
    let world = World::with_partitions(1).await;
    world.produce(0, &Charge { status: "pending", ..Charge::of_event(1) }).await;
    world.produce(0, &Charge { status: "declined", ..Charge::of_event(2) }).await;
    let other_id = id(3).to_string();
    let other = [("ce_id", other_id.as_bytes()), ("ce_type", b"InvoiceSent")];
    world.produce_raw(0, &other, Some(b"not even JSON")).await;
    let consumer = world.start();

    world.eventually_committed(0, 3).await;

    assert_eq!(world.count("inbox").await, 3);
    assert_eq!(world.count("receipts").await, 0);
    assert_eq!(world.count("daily_totals").await, 0);
    assert_eq!(consumer.outcomes(), (3.0, 0.0, 0.0));
    consumer.stop().await;
}

#[tokio::test]
async fn a_daily_total_holds_more_than_a_bigint() {
    let database = pg_test::database().await;
    let url = database.url();
    let settings: DatabaseSettings =
        settings::load(None, &[("DATABASE_URL", &url)]).expect("settings");
    let pool = Pool::new(&settings, "test").expect("a pool");
    let largest = |number| Receipt {
        tenant: "default",
        id: id(number),
        event_id: id(number),
        charge_id: id(number),
        amount_cents: i64::MAX,
        currency: "BRL",
        day: date(2026, 11, 30),
    };

    for batch in [[largest(1), largest(2)], [largest(3), largest(4)]] {
        let mut connection = pool.get().await.expect("a connection");
        let tx = connection.transaction().await.expect("a transaction");
        receipts::insert(&tx, &batch).await.expect("receipts");
        receipts::add_to_daily_totals(&tx, &batch).await.expect("totals");
        tx.commit().await.expect("a commit");
    }

    let client = database.client().await;
    let row = client.query_one("SELECT charges, amount_cents::text FROM daily_totals", &[]).await;
    let row = row.expect("one total");
    let expected = (4 * i128::from(i64::MAX)).to_string();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (4, expected.as_str()));
}
