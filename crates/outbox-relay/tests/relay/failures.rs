//! The failure table of the relay: whose fault it was decides what happens to a row.

use crate::rig::{NewRow, Rig, eventually};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

/// Lets a record time out soon.
const IMPATIENT: [(&str, &str); 1] = [("ONCEBOX_KAFKA_MESSAGE_TIMEOUT", "300ms")];

#[tokio::test]
async fn a_broker_that_is_down_costs_no_row_an_attempt() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&IMPATIENT).await;
    rig.insert(&NewRow::of("before")).await;
    relay.until_drained(&rig).await;
    assert!(relay.readiness.failing().is_empty(), "{:?}", relay.readiness.failing());

    rig.cluster.broker_down(1).unwrap();
    for n in 0..20 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    let metrics = relay.metrics.clone();
    let open = move || metrics.breaker_open.with_label_values(&[crate::rig::TOPIC]).get();
    relay.until("the breaker opens", async |_| open() == 1).await;
    let sql = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND attempts = 0 AND parked_at IS NULL";
    let untouched: i64 = rig.client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(untouched, 20);
    let failing = relay.readiness.failing();
    assert_eq!(failing[0].0, "kafka");

    rig.cluster.broker_up(1).unwrap();
    relay.until_drained(&rig).await;
    assert!(relay.readiness.failing().is_empty(), "{:?}", relay.readiness.failing());
    assert_eq!(relay.metrics.rows_parked.get(), 0);
}

#[tokio::test]
async fn an_oversize_row_is_parked_and_holds_its_aggregate_and_no_other() {
    let rig = Rig::new().await;
    let large = vec![b'x'; 20_000];
    let settings = [("ONCEBOX_KAFKA_MESSAGE_BYTES_MAX", "10000B")];
    rig.insert(&NewRow::of("held")).await;
    let culprit = rig.insert(&NewRow { payload: &large, ..NewRow::of("held") }).await;
    let behind = rig.insert(&NewRow::of("held")).await;
    for n in 0..20 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    let mut relay = rig.member(&settings).await;
    relay.until("the others are published", async |_| rig.published().await == 21).await;
    relay.until("the row is parked", async |_| rig.pending().await == 1).await;
    let sql = "SELECT parked_at IS NOT NULL, attempts, last_error FROM outbox WHERE id = $1";
    let row = rig.client.query_one(sql, &[&culprit]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (true, 1));
    let error: String = row.get(2);
    assert_eq!(error, "the payload has 20000 bytes, more than kafka.message_bytes_max");
    let row = rig.client.query_one(sql, &[&behind]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), (false, 0));
    assert_eq!(relay.metrics.rows_parked.get(), 1);

    // An operator makes it sendable and lets it go: the aggregate goes on in its order.
    let unpark = "UPDATE outbox SET payload = 'small', parked_at = NULL WHERE id = $1";
    rig.client.execute(unpark, &[&culprit]).await.unwrap();
    relay.until("all is published", async |_| rig.published().await == 23).await;
    let records = rig.records().await;
    let held: Vec<_> = records.iter().filter(|it| it.key == "held").map(|it| it.id()).collect();
    assert_eq!(held[1..], [culprit.to_string(), behind.to_string()]);
}

#[tokio::test]
async fn a_batch_that_kafka_refuses_is_sent_again_record_by_record_and_none_is_parked() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    let refusal = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE];
    rig.cluster.request_errors(RDKafkaApiKey::Produce, &refusal);
    for n in 0..20 {
        rig.insert(&NewRow::of(&format!("a-{n}"))).await;
    }
    relay.until_drained(&rig).await;
    assert_eq!((rig.published().await, relay.metrics.rows_parked.get()), (20, 0));
    let labels = [crate::rig::TOPIC, "record"];
    assert!(relay.metrics.publish_errors.with_label_values(&labels).get() > 0);
    assert_eq!(rig.records().await.len(), 20);
}

#[tokio::test]
async fn a_record_that_kafka_refuses_alone_is_parked() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    let refusal = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; 2];
    rig.cluster.request_errors(RDKafkaApiKey::Produce, &refusal);
    rig.insert(&NewRow::of("a")).await;
    relay.until("it is parked", async |pass| pass.parked == 1).await;
    let row = rig.client.query_one("SELECT attempts, last_error FROM outbox", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
    assert!(row.get::<_, String>(1).contains("too large"), "{row:?}");
}

#[tokio::test]
async fn a_denied_topic_is_named_and_waited_for() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&IMPATIENT).await;
    let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
    rig.cluster.request_errors(RDKafkaApiKey::Produce, &denied);
    rig.insert(&NewRow::of("a")).await;
    let metrics = relay.metrics.clone();
    let labels = [crate::rig::TOPIC, "denied"];
    let errors = || metrics.publish_errors.with_label_values(&labels).get();
    relay.until("it is refused", async |_| errors() == 1).await;
    relay.until_drained(&rig).await;
    assert_eq!(relay.metrics.rows_parked.get(), 0);
}

#[tokio::test]
async fn a_missing_topic_is_reported_and_used_once_it_is_there() {
    let rig = Rig::new().await;
    let mut env = vec![("ONCEBOX_KAFKA_TOPIC", "not.yet.there")];
    env.extend(IMPATIENT);
    let mut relay = rig.member(&env).await;
    rig.insert(&NewRow::of("a")).await;
    let readiness = relay.readiness.clone();
    relay
        .until("readiness names the topic", async |_| {
            readiness.failing().iter().any(|(_, reason)| {
                reason.contains("not.yet.there") && reason.contains("Unknown topic")
            })
        })
        .await;
    rig.cluster.create_topic("not.yet.there", 1, 1).unwrap();
    relay.until_drained(&rig).await;
    assert_eq!((rig.published().await, relay.metrics.rows_parked.get()), (1, 0));
}

#[tokio::test]
async fn a_broken_producer_is_replaced_and_nothing_is_marked_meanwhile() {
    let rig = Rig::new().await;
    let mut relay = rig.member(&[]).await;
    // For the first request of a producer, this is a state that it cannot explain: fatal.
    let fatal = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER];
    rig.cluster.request_errors(RDKafkaApiKey::Produce, &fatal);
    rig.insert(&NewRow::of("a")).await;
    let metrics = relay.metrics.clone();
    relay.until("it is replaced", async |_| metrics.producers_rebuilt.get() == 1).await;
    assert_eq!(rig.published().await, 0);
    assert_eq!(relay.readiness.failing().len(), 1);
    relay.until_drained(&rig).await;
    assert!(relay.readiness.failing().is_empty(), "{:?}", relay.readiness.failing());
    assert_eq!(relay.metrics.producers_rebuilt.get(), 1);
}

#[tokio::test]
async fn a_database_that_drops_its_connections_loses_and_duplicates_nothing() {
    let rig = Rig::new().await;
    let relay = rig.run(&[]);
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'outbox-relay'";
    for round in 0..10 {
        let seen = rig.published().await;
        for n in 0..30 {
            rig.insert(&NewRow::of(&format!("a-{n}"))).await;
        }
        eventually("it publishes", async || rig.published().await > seen).await;
        if round % 3 == 0 {
            rig.client.query_one(kill, &[]).await.unwrap();
        }
    }
    eventually("nothing is pending", async || rig.pending().await == 0).await;
    eventually("it is ready", async || relay.readiness.failing().is_empty()).await;
    relay.stop().await;
    assert_eq!(rig.records().await.len(), 300);
}
