//! `oncebox outbox verify`, against librdkafka's mock cluster. A real topic, with times and a
//! retention, is verified end to end, in `tests/`.

use std::time::Duration;

use pg_test::TestDatabase;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Run, oncebox, oncebox_in};

const TOPIC: &str = "charges.events";

struct World {
    database: TestDatabase,
    client: Client,
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: FutureProducer,
}

/// A row and the record that was made of it.
#[derive(Clone, Copy)]
struct Event {
    id: Uuid,
    partition: i32,
    offset: i64,
}

impl World {
    async fn new() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, 2, 1).unwrap();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("linger.ms", "0")
            .create()
            .unwrap();
        let database = pg_test::database().await;
        let client = database.client().await;
        Self { database, client, cluster, producer }
    }

    async fn send(&self, key: &str, value: &str, headers: &[(&str, &str)], partition: i32) -> i64 {
        let headers = headers.iter().fold(OwnedHeaders::new(), |headers, &(key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let record =
            FutureRecord::to(TOPIC).key(key).payload(value).headers(headers).partition(partition);
        self.producer.send(record, Duration::from_secs(30)).await.unwrap().offset
    }

    async fn record(&self, id: Uuid, key: &str, value: &str, partition: i32) -> i64 {
        let id = id.to_string();
        self.send(key, value, &[("ce_id", &id), ("ce_tenantid", "default")], partition).await
    }

    /// A pending row.
    async fn row(&self, key: &str, value: &str) -> Uuid {
        let sql = "INSERT INTO outbox (aggregate_id, event_type, payload)
                   VALUES ($1, 'Counted', $2) RETURNING id";
        self.client.query_one(sql, &[&key, &value.as_bytes()]).await.unwrap().get(0)
    }

    async fn mark(&self, id: Uuid, partition: i32, offset: i64) {
        let sql = "UPDATE outbox SET published_at = now(), published_topic = $2,
                       published_partition = $3, published_offset = $4 WHERE id = $1";
        self.client.execute(sql, &[&id, &TOPIC, &partition, &offset]).await.unwrap();
    }

    async fn event(&self, key: &str, partition: i32) -> Event {
        let id = self.row(key, "value").await;
        let offset = self.record(id, key, "value", partition).await;
        self.mark(id, partition, offset).await;
        Event { id, partition, offset }
    }

    async fn verify(&self, arguments: &[&str]) -> Run {
        let (url, brokers) = (self.database.url(), self.cluster.bootstrap_servers());
        let environment = [("DATABASE_URL", url.as_str()), ("KAFKA_BROKERS", brokers.as_str())];
        oncebox_in(&environment, &[&["outbox", "verify"], arguments].concat()).await
    }
}

#[tokio::test]
async fn a_topic_that_agrees_with_its_outbox_is_whole_whatever_is_in_it_twice_or_not_marked_yet() {
    let world = World::new().await;
    let first = world.event("a", 0).await;
    world.event("b", 1).await;
    // Sent twice; and replayed, on a topic that got more partitions meanwhile.
    world.record(first.id, "a", "value", 0).await;
    let id = first.id.to_string();
    let replay = [("ce_id", id.as_str()), ("ce_tenantid", "default"), ("replay", "x")];
    let offset = world.send("a", "value", &replay, 1).await;
    let replayed = "UPDATE outbox SET headers = '{\"replay\": \"x\"}' WHERE id = $1";
    world.client.execute(replayed, &[&first.id]).await.unwrap();
    world.mark(first.id, 1, offset).await;
    // A relay is just about to mark it.
    let pending = world.row("c", "value").await;
    world.record(pending, "c", "value", 0).await;
    world.row("not sent", "value").await;
    // Sent, replayed, parked and discarded.
    let discarded = world.event("d", 0).await;
    let discard = "WITH gone AS (DELETE FROM outbox WHERE id = $1 RETURNING *)
         INSERT INTO outbox_discarded (tenant_id, id, aggregate_id, event_type, payload, headers, created_at, attempts)
         SELECT tenant_id, id, aggregate_id, event_type, payload, headers, created_at, attempts FROM gone";
    world.client.execute(discard, &[&discarded.id]).await.unwrap();
    // Another topic's.
    let elsewhere = world.event("e", 0).await;
    let other = "UPDATE outbox SET published_topic = 'other', published_offset = 99 WHERE id = $1";
    world.client.execute(other, &[&elsewhere.id]).await.unwrap();

    let report = world.verify(&["--json"]).await.ends_with(0).json();

    assert_eq!(report["whole"], true);
    let numbers = ["records", "rowsProven", "copies", "notYetMarked", "ofDiscardedRows"];
    assert_eq!(numbers.map(|name| report[name].as_i64()), [7, 2, 3, 1, 1].map(Some), "{report}");
    assert_eq!(report["topicProvableSince"], Value::Null);
    let text = world.verify(&[]).await.ends_with(0);
    assert!(text.stdout.contains("the topic and the outbox agree"), "{text:?}");
}

#[tokio::test]
async fn each_difference_is_named_with_its_place_and_exit_code_1() {
    let world = World::new().await;
    let good = world.event("good", 0).await;
    // Marked, and another event's record is in its place; marked, and nothing is there.
    let displaced = world.row("displaced", "value").await;
    world.mark(displaced, 0, good.offset).await;
    let beyond = world.row("beyond", "value").await;
    world.mark(beyond, 1, 1_000).await;
    let no_partition = world.row("no partition", "value").await;
    world.mark(no_partition, 7, 0).await;
    // A stranger's record, and one that says nothing of itself.
    let stranger = Uuid::now_v7();
    let stranger_at = world.record(stranger, "x", "value", 1).await;
    let unreadable_at = world.send("x", "value", &[("ce_id", "none")], 1).await;
    // Its row says otherwise.
    let forged = world.row("forged", "value").await;
    let at = world.record(forged, "other key", "other value", 1).await;
    world.mark(forged, 1, at).await;
    // A copy that nobody asked for, on another partition.
    world.record(good.id, "good", "value", 1).await;

    let report = world.verify(&["--json"]).await.ends_with(1).json();

    assert_eq!((&report["whole"], &report["rowsProven"]), (&false.into(), &2.into()));
    let found = |kind: &str, id: Option<Uuid>, partition: i64, offset: i64| {
        let named = report["named"].as_array().unwrap();
        let count = named.iter().filter(|it| {
            it["kind"] == kind
                && it["id"] == id.map_or(Value::Null, |id| id.to_string().into())
                && (it["partition"].as_i64(), it["offset"].as_i64())
                    == (Some(partition), Some(offset))
        });
        assert_eq!(count.count(), 1, "{kind}: {report}");
    };
    found("missing_record", Some(displaced), 0, good.offset);
    found("missing_record", Some(beyond), 1, 1_000);
    found("missing_record", Some(no_partition), 7, 0);
    found("missing_row", Some(stranger), 1, stranger_at);
    found("unreadable", None, 1, unreadable_at);
    found("other_key", Some(forged), 1, at);
    found("other_value", Some(forged), 1, at);
    found("other_partition", Some(good.id), 1, at + 1);
    assert_eq!(report["named"].as_array().unwrap().len(), 8, "{report}");
    assert_eq!(report["differences"]["missing_record"], 3);
    let text = world.verify(&[]).await.ends_with(1);
    assert!(text.stdout.contains("oncebox outbox replay"), "{text:?}");
    assert!(text.stdout.contains(&displaced.to_string()), "{text:?}");
}

#[tokio::test]
async fn records_whose_rows_retention_has_deleted_are_no_difference() {
    let world = World::new().await;
    let event = world.event("a", 0).await;
    assert_eq!((event.partition, event.offset), (0, 0));
    world.client.execute("DELETE FROM outbox WHERE id = $1", &[&event.id]).await.unwrap();
    world.verify(&[]).await.ends_with(1);

    world.client.batch_execute("UPDATE outbox_retention SET removed_before = now()").await.unwrap();

    let report = world.verify(&["--json"]).await.ends_with(0).json();
    assert_eq!(report["ofRemovedRows"], 1);
    let text = world.verify(&[]).await.ends_with(0);
    assert!(text.stdout.contains("the outbox goes back to"), "{text:?}");
}

#[tokio::test]
async fn a_topic_longer_than_a_batch_is_held_against_all_its_rows() {
    const ROWS: usize = 6_001;
    let world = World::new().await;
    let insert = format!(
        "INSERT INTO outbox (aggregate_id, event_type, payload, published_at, published_topic, published_partition, published_offset)
         SELECT n::text, 'Counted', 'value', now(), '{TOPIC}', n % 2, n / 2
         FROM generate_series(0, {ROWS} - 1) AS n RETURNING id, aggregate_id"
    );
    let mut sends = tokio::task::JoinSet::new();
    let rows = world.client.query(&insert, &[]).await.unwrap();
    for (n, row) in rows.iter().enumerate() {
        let (id, key): (Uuid, String) = (row.get(0), row.get(1));
        let headers = OwnedHeaders::new()
            .insert(Header { key: "ce_id", value: Some(&id.to_string()) })
            .insert(Header { key: "ce_tenantid", value: Some("default") });
        let partition = i32::try_from(n % 2).unwrap();
        let record = FutureRecord::to(TOPIC).key(&key).payload("value").headers(headers);
        let delivery = world.producer.send_result(record.partition(partition)).unwrap();
        sends.spawn(delivery);
    }
    for delivery in sends.join_all().await {
        delivery.unwrap().unwrap();
    }

    let report = world.verify(&["--json"]).await.ends_with(0).json();

    assert_eq!((&report["records"], &report["rowsProven"]), (&ROWS.into(), &ROWS.into()));
}

#[tokio::test]
async fn without_kafka_or_the_topic_it_says_what_to_do() {
    let world = World::new().await;
    let url = world.database.url();

    let unset = oncebox(&url, &["outbox", "verify"]).await.ends_with(64);
    assert!(unset.stderr.contains("KAFKA_BROKERS"), "{unset:?}");
    // Port 1 is nobody's.
    let environment = [("DATABASE_URL", url.as_str()), ("KAFKA_BROKERS", "127.0.0.1:1")];
    let away = oncebox_in(&environment, &["outbox", "verify"]).await.ends_with(69);
    assert!(away.stderr.contains("kafka.brokers"), "{away:?}");
    let unknown = world.verify(&["--topic", "no.such.topic"]).await.ends_with(70);
    assert!(unknown.stderr.contains("--topic"), "{unknown:?}");
}
