//! Several topics: which event goes where, and that a topic in trouble is in trouble alone.

use crate::rig::{NewRow, Rig, TOPIC, eventually};

const MAILS: &str = "mails";
const ROUTES: (&str, &str) = ("ONCEBOX_KAFKA_ROUTES", "Mail=mails,Letter=mails");
/// Lets a record time out soon.
const IMPATIENT: (&str, &str) = ("ONCEBOX_KAFKA_MESSAGE_TIMEOUT", "300ms");

fn mail(aggregate: &str) -> NewRow<'_> {
    NewRow { event_type: "Mail", ..NewRow::of(aggregate) }
}

/// The ids in a topic that are of one aggregate, in their order.
async fn ids(rig: &Rig, topic: &str, aggregate: &str) -> Vec<String> {
    let records = rig.records_of(topic).await;
    records.iter().filter(|it| it.key == aggregate).map(|it| it.id().to_owned()).collect()
}

async fn pending(rig: &Rig, event_type: &str) -> i64 {
    let sql = "SELECT count(*) FROM outbox
               WHERE published_at IS NULL AND parked_at IS NULL AND attempts = 0 AND event_type = $1";
    rig.client.query_one(sql, &[&event_type]).await.unwrap().get(0)
}

#[tokio::test]
async fn each_event_goes_to_the_topic_of_its_type_and_keeps_its_order_there() {
    let rig = Rig::new().await;
    rig.cluster.create_topic(MAILS, 4, 1).unwrap();
    let (mut charges, mut mails) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let event_type = ["ChargeCreated", "Mail", "Letter"][n % 3];
        let row = NewRow { event_type, ..NewRow::of("a") };
        let ids = if n % 3 == 0 { &mut charges } else { &mut mails };
        ids.push(rig.insert(&row).await.to_string());
    }
    let relay = rig.run(&[ROUTES]);
    eventually("all is published", async || rig.published().await == 60).await;
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    assert_eq!(ids(&rig, TOPIC, "a").await, charges);
    assert_eq!(ids(&rig, MAILS, "a").await, mails);
    let sql = "SELECT count(*) FROM outbox
               WHERE (published_topic = 'mails') = (event_type IN ('Mail', 'Letter'))";
    assert_eq!(rig.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 60);
    relay.stop().await;
    let sql = "SELECT count(*) FROM outbox_buckets WHERE owner IS NOT NULL";
    assert_eq!(rig.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_missing_topic_holds_up_its_own_events_alone() {
    let rig = Rig::new().await;
    // More than a relay takes into memory, and before all others.
    let small = [("ONCEBOX_RELAY_BATCH", "100"), ("ONCEBOX_RELAY_IN_FLIGHT_ROWS", "100")];
    let sql = "INSERT INTO outbox (aggregate_id, event_type, payload)
               SELECT 'm-' || n % 50, 'Mail', '{}' FROM generate_series(1, 1000) n";
    rig.client.execute(sql, &[]).await.unwrap();
    let first = rig.insert(&mail("both")).await;
    rig.insert(&NewRow::of("both")).await;
    let relay = rig.run(&[ROUTES, IMPATIENT, small[0], small[1]]);
    eventually("the other topic gets its event", async || rig.published().await == 1).await;
    eventually("the missing topic is named", async || {
        let failing = relay.readiness.failing();
        failing.len() == 1 && failing[0].0 == "kafka" && failing[0].1.contains(MAILS)
    })
    .await;
    for n in 0..300 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    eventually("the others go on", async || rig.published().await == 301).await;
    assert_eq!(pending(&rig, "Mail").await, 1001);

    let second = rig.insert(&mail("both")).await;
    rig.cluster.create_topic(MAILS, 4, 1).unwrap();
    eventually("all is published", async || rig.pending().await == 0).await;
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    relay.stop().await;
    assert_eq!(ids(&rig, MAILS, "both").await, [first.to_string(), second.to_string()]);
    assert_eq!(rig.records_of(MAILS).await.len(), 1002);
}

#[tokio::test]
async fn a_relay_that_stops_while_a_topic_is_missing_gives_its_buckets_back() {
    let rig = Rig::new().await;
    let relay = rig.run(&[ROUTES, IMPATIENT]);
    rig.insert(&mail("a")).await;
    eventually("the breaker opens", async || relay.metric("outbox_breaker_open") > 0.0).await;
    relay.stop().await;
    let sql = "SELECT count(*) FROM outbox_buckets WHERE owner IS NOT NULL";
    assert_eq!(rig.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(pending(&rig, "Mail").await, 1);
}

#[tokio::test]
async fn behind_a_parked_row_the_later_ones_wait_or_go_on_as_their_topic_says() {
    let rig = Rig::new().await;
    rig.cluster.create_topic(MAILS, 4, 1).unwrap();
    let large = vec![b'x'; 20_000];
    for event_type in ["Mail", "ChargeCreated"] {
        let row = NewRow { event_type, ..NewRow::of(event_type) };
        rig.insert(&row).await;
        rig.insert(&NewRow { payload: &large, ..row.clone() }).await;
        rig.insert(&row).await;
        rig.insert(&row).await;
    }
    let limit = ("ONCEBOX_KAFKA_MESSAGE_BYTES_MAX", "10000B");
    let relay = rig.run(&[ROUTES, limit, ("ONCEBOX_KAFKA_PASS_PARKED", MAILS)]);
    eventually("both are parked", async || relay.metric("outbox_rows_parked_total") == 2.0).await;
    eventually("one goes on", async || pending(&rig, "Mail").await == 0).await;
    assert_eq!(pending(&rig, "ChargeCreated").await, 2);
    relay.stop().await;
    assert_eq!(ids(&rig, MAILS, "Mail").await.len(), 3);
    assert_eq!(ids(&rig, TOPIC, "ChargeCreated").await.len(), 1);
}

#[tokio::test]
async fn without_an_order_an_aggregate_is_sent_at_once_and_nothing_waits_behind_a_parked_row() {
    let rig = Rig::new().await;
    let large = vec![b'x'; 20_000];
    rig.insert(&NewRow { payload: &large, ..NewRow::of("a") }).await;
    for _ in 0..50 {
        rig.insert(&NewRow::of("a")).await;
    }
    let limit = ("ONCEBOX_KAFKA_MESSAGE_BYTES_MAX", "10000B");
    let mut relay = rig.member(&[limit, ("ONCEBOX_RELAY_ORDERING", "none")]).await;
    // Before any of them is marked: in order, it would be one.
    relay.send_without_marking(50).await;
    relay.until_drained(&rig).await;
    rig.insert(&NewRow::of("a")).await;
    relay.until_drained(&rig).await;
    assert_eq!((rig.published().await, relay.metrics.rows_parked.get()), (51, 1));
    assert_eq!(ids(&rig, TOPIC, "a").await.len(), 51);
}
