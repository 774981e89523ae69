//! What cannot be applied is put aside whole, and its partition moves on.

use charge_consumer::issue_receipts::IssueReceipts;

use crate::world::{Charge, Headers, World, eventually, id};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_becomes_dead_letters_and_the_partition_moves_on() {
    let world = World::with_partitions(1).await;
    let ids: Vec<String> = (1..=6).map(|number| id(number).to_string()).collect();
    let kind = ("ce_type", b"ChargeCreated".as_slice());
    let zero = Charge { amount_cents: 0, ..Charge::of_event(4) }.payload();
    let poison: [(Headers<'_>, Option<&[u8]>, &str); 7] = [
        (&[kind], Some(b"{}"), "there is no ce_id header"),
        (&[("ce_id", b"\xff\0"), kind], Some(b"{}"), "the ce_id header cannot be read"),
        (&[("ce_id", ids[0].as_bytes()), kind], Some(b"\xff\xfe\0"), "cannot be applied"),
        (&[("ce_id", ids[1].as_bytes()), kind], Some(b"{"), "cannot be applied"),
        (&[("ce_id", ids[2].as_bytes()), kind], Some(b"{\"a\":1}"), "cannot be applied"),
        (&[("ce_id", ids[3].as_bytes()), kind], Some(zero.as_bytes()), "an amount is from 1 to"),
        (&[("ce_id", ids[4].as_bytes()), kind], None, "the value is empty"),
    ];
    for (headers, payload, _) in poison {
        world.produce_raw(0, headers, payload).await;
    }
    world.produce(0, &Charge::of_event(6)).await;
    let consumer = world.start();

    world.eventually_committed(0, 8).await;

    assert_eq!(world.totals().await, (1, 4900));
    assert_eq!(consumer.outcomes(), (1.0, 0.0, 7.0));
    let letters =
        "SELECT payload, reason, attempts, headers FROM dead_letters ORDER BY source_offset";
    let rows = world.sql.query(letters, &[]).await.expect("dead letters");
    for (row, (_, payload, reason)) in rows.iter().zip(poison) {
        assert_eq!(row.get::<_, Option<&[u8]>>(0), payload);
        assert!(row.get::<_, &str>(1).contains(reason), "{} for {reason}", row.get::<_, &str>(1));
        assert_eq!(row.get::<_, i32>(2), 1);
    }
    // What jsonb has no text for is kept too.
    let headers: serde_json::Value = rows[1].get(3);
    assert_eq!(headers[0], serde_json::json!({ "name": "ce_id", "hex": "ff00" }));
    consumer.stop().await;

    // Delivered again, they are known.
    let env = [("ONCEBOX_KAFKA_GROUP", "again"), ("ONCEBOX_CONSUMER_NAME", "charge-consumer")];
    let again = world.start_with(IssueReceipts, &env);
    eventually("all come again", || async { again.outcomes().1 == 8.0 }).await;
    assert_eq!(world.count("dead_letters").await, 7);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_event_gets_its_attempts_and_does_not_fail_its_neighbours() {
    let world = World::with_partitions(1).await;
    // Nobody can tell from the error whether it is the event's fault.
    world
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'not this one'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON receipts
             FOR EACH ROW WHEN (NEW.amount_cents = 13) EXECUTE FUNCTION refuse()",
        )
        .await;
    for event in 0..10 {
        let amount_cents = if event == 4 { 13 } else { 100 };
        world.produce(0, &Charge { amount_cents, ..Charge::of_event(event) }).await;
    }
    let consumer = world.start();

    world.eventually_committed(0, 10).await;

    assert_eq!(world.totals().await, (9, 900));
    assert_eq!(consumer.outcomes(), (9.0, 0.0, 1.0));
    assert_eq!(consumer.metric("inbox_retries_total{cause=\"event\"}"), 2.0);
    let row = world.sql.query_one("SELECT event_id, attempts FROM dead_letters", &[]).await;
    let row = row.expect("one dead letter");
    assert_eq!((row.get::<_, uuid::Uuid>(0), row.get::<_, i32>(1)), (id(4), 3));
    // In the same transaction as the letter: a copy is a duplicate, not another letter.
    assert_eq!(world.count("inbox").await, 10);
    consumer.stop().await;
}
