//! A database, a mock cluster, and relays that a test moves by hand (`Member`) or lets run
//! (`Running`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox_relay::{
    Destination, Keeper, Leases, Metrics, Occupant, Pass, Publisher, Relay, Route, Service,
    Session, Settings, Writer,
};
use pg_test::TestDatabase;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use store::{Connection, Pool};
use telemetry::Readiness;
use telemetry::prometheus::Registry;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub const TOPIC: &str = "charges.events";
pub const PARTITIONS: i32 = 4;
/// A test that passes never waits that long.
pub const SOON: Duration = Duration::from_secs(60);

pub struct Rig {
    pub database: TestDatabase,
    pub client: Client,
    pub cluster: MockCluster<'static, DefaultProducerContext>,
}

/// A row as a test writes it.
#[derive(Debug, Clone)]
pub struct NewRow<'a> {
    pub aggregate: &'a str,
    pub event_type: &'a str,
    pub payload: &'a [u8],
    pub headers: serde_json::Value,
    pub version: Option<i64>,
}

impl<'a> NewRow<'a> {
    pub fn of(aggregate: &'a str) -> Self {
        Self {
            aggregate,
            event_type: "ChargeCreated",
            payload: b"{}",
            headers: serde_json::json!({}),
            version: None,
        }
    }
}

/// A record as Kafka has it.
#[derive(Debug, Clone)]
pub struct Record {
    pub key: String,
    pub payload: Option<Vec<u8>>,
    pub headers: BTreeMap<String, String>,
    pub partition: i32,
    pub offset: i64,
}

impl Record {
    pub fn id(&self) -> &str {
        &self.headers["ce_id"]
    }
}

impl Rig {
    pub async fn new() -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(TOPIC, PARTITIONS, 1).unwrap();
        let database = pg_test::database().await;
        let client = database.client().await;
        Self { database, client, cluster }
    }

    pub fn settings(&self, more: &[(&str, &str)]) -> Settings {
        let (url, brokers) = (self.database.url(), self.cluster.bootstrap_servers());
        let mut env = vec![("DATABASE_URL", url.as_str()), ("KAFKA_BROKERS", brokers.as_str())];
        env.extend(more);
        settings::load(None, &env).unwrap()
    }

    /// A relay of the first topic that a test moves by hand, with all the buckets it can get. Its leases are long:
    /// a slow test must not lose them.
    pub async fn member(&self, more: &[(&str, &str)]) -> Member {
        let mut env = vec![("ONCEBOX_RELAY_LEASE", "120s")];
        env.extend(more);
        let member = self.member_without_leases(&env).await;
        member.renew().await;
        member
    }

    pub async fn member_without_leases(&self, more: &[(&str, &str)]) -> Member {
        let settings = self.settings(more);
        let registry = Registry::new();
        let readiness = Readiness::new();
        let metrics = Metrics::register(&registry);
        let leases = Arc::new(Leases::default());
        let id = Uuid::now_v7();
        let keeper = Keeper::new(id, &settings, metrics.clone());
        let publisher = Publisher::new(&settings.kafka).unwrap();
        let route = Route::all(&settings).remove(0);
        let destination = Destination::new(route, metrics.clone(), readiness.condition("kafka"));
        let pool = Pool::new(&settings.database, "outbox-relay").unwrap();
        let session = Session::new(&pool, SOON, readiness.condition("database"));
        let marks = metrics.mark_duration.clone();
        let writer = Writer::spawn(id, Arc::clone(&destination.route), session, marks);
        let occupant = Occupant::new(&leases);
        let relay =
            Relay::new(&settings, metrics.clone(), occupant, publisher, destination, writer);
        let connection = pool.get().await.unwrap();
        Member { keeper, leases, relay, connection, metrics, readiness }
    }

    /// A relay that runs by itself.
    pub fn run(&self, more: &[(&str, &str)]) -> Running {
        let readiness = Readiness::new();
        let registry = Registry::new();
        let service = Service::build(self.settings(more), &registry, &readiness).unwrap();
        let token = CancellationToken::new();
        let task = tokio::spawn(service.run(token.clone()));
        Running { task, token, readiness, registry }
    }

    /// Writes a row and returns its id.
    pub async fn insert(&self, row: &NewRow<'_>) -> Uuid {
        insert(&self.client, row).await
    }

    pub async fn pending(&self) -> i64 {
        let sql = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND parked_at IS NULL";
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub async fn published(&self) -> i64 {
        let sql = "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL";
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub async fn records(&self) -> Vec<Record> {
        self.records_of(TOPIC).await
    }

    /// Everything in a topic, partition by partition in the order of offsets.
    pub async fn records_of(&self, topic: &str) -> Vec<Record> {
        let consumer: StreamConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.cluster.bootstrap_servers())
            .set("group.id", "test")
            .set("enable.auto.commit", "false")
            .set("fetch.message.max.bytes", "10000000")
            .set("enable.partition.eof", "true")
            .create()
            .unwrap();
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assignment).unwrap();
        let mut records = Vec::new();
        let mut ended = 0;
        while ended < PARTITIONS {
            let received = tokio::time::timeout(SOON, consumer.recv()).await;
            match received.expect("the topic can be read to its end") {
                Err(rdkafka::error::KafkaError::PartitionEOF(_)) => ended += 1,
                Err(error) => panic!("the topic cannot be read: {error}"),
                Ok(message) => records.push(record(&message)),
            }
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }
}

fn record(message: &rdkafka::message::BorrowedMessage<'_>) -> Record {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = message.headers().unwrap().iter();
    Record {
        key: text(message.key().unwrap()),
        payload: message.payload().map(<[u8]>::to_vec),
        headers: headers.map(|it| (it.key.to_owned(), text(it.value.unwrap()))).collect(),
        partition: message.partition(),
        offset: message.offset(),
    }
}

pub async fn insert(client: &Client, row: &NewRow<'_>) -> Uuid {
    let sql = "INSERT INTO outbox (aggregate_id, aggregate_version, event_type, payload, headers)
               VALUES ($1, $2, $3, $4, $5) RETURNING id";
    let inserted = client
        .query_one(
            sql,
            &[&row.aggregate, &row.version, &row.event_type, &row.payload, &row.headers],
        )
        .await;
    inserted.unwrap().get(0)
}

/// Waits for something to become true while everything else goes on.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub struct Member {
    pub keeper: Keeper,
    pub leases: Arc<Leases>,
    pub relay: Relay,
    pub connection: Connection,
    pub metrics: Metrics,
    pub readiness: Readiness,
}

impl Member {
    pub async fn renew(&self) {
        self.keeper.run_once(&self.connection, &self.leases).await.unwrap();
    }

    pub async fn pass(&mut self) -> Pass {
        self.relay.run_once(&self.connection).await.unwrap()
    }

    /// Makes passes until the condition holds after one.
    pub async fn until(&mut self, what: &str, mut condition: impl AsyncFnMut(&Pass) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let pass = self.pass().await;
            if condition(&pass).await {
                return;
            }
            assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
            self.relay.rest().await;
        }
    }

    /// Makes passes until no row is pending.
    pub async fn until_drained(&mut self, rig: &Rig) {
        self.until("nothing is pending", async |_| rig.pending().await == 0).await;
    }

    /// Sends what is pending and waits for all acknowledgements, but marks nothing.
    pub async fn send_without_marking(&mut self, records: usize) {
        let mut sent = 0;
        while sent < records {
            sent += self.pass().await.sent;
            if sent < records {
                self.relay.rest().await;
            }
        }
        let relay = &self.relay;
        eventually("Kafka has acknowledged", async || relay.deliveries_waiting() == records).await;
    }
}

pub struct Running {
    task: JoinHandle<Result<(), outbox_relay::Error>>,
    token: CancellationToken,
    pub readiness: Readiness,
    pub registry: Registry,
}

impl Running {
    /// As SIGTERM does.
    pub async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(SOON, self.task).await.unwrap().unwrap().unwrap();
    }

    /// As SIGKILL does: what is in memory is gone, and no lease is given back.
    pub async fn kill(self) {
        self.task.abort();
        let _cancelled = self.task.await;
    }

    /// The sum of all series of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let series = families.iter().filter(|family| family.name() == name);
        let values = series
            .flat_map(|family| family.get_metric())
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value());
        values.sum()
    }
}
