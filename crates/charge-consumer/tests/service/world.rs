//! A database, a topic and consumers on them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::LazyLock;
use std::time::Duration;

use charge_consumer::consumer::NAME;
use charge_consumer::issue_receipts::IssueReceipts;
use charge_consumer::settings::Settings;
use inbox::{Handler, Inbox};
use pg_test::TestDatabase;
use prometheus::{Registry, TextEncoder};
use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use telemetry::Readiness;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub const TOPIC: &str = "charges.events";
/// The mock cluster lets a new group wait for three seconds; the rest is for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The lock that a held effect waits for.
const HOLD: i64 = 4711;

pub struct World {
    pub sql: Client,
    database: TestDatabase,
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: FutureProducer,
}

pub type Headers<'a> = &'a [(&'a str, &'a [u8])];

/// A record of a charge event. The defaults are a charge of 4900 that succeeded.
#[derive(Debug, Clone)]
pub struct Charge {
    pub event: u32,
    pub amount_cents: i64,
    pub status: &'static str,
}

impl Charge {
    pub fn of_event(event: u32) -> Self {
        Self { event, amount_cents: 4900, status: "succeeded" }
    }

    pub fn payload(&self) -> String {
        format!(
            r#"{{"chargeId":"{}","tenantId":"default","amountCents":{},"currency":"BRL","status":"{}","createdAt":"2026-11-30T23:59:59.999999Z"}}"#,
            id(self.event),
            self.amount_cents,
            self.status
        )
    }
}

/// The time that the events of a test were written at, in the upper half of their ids.
static WRITTEN: LazyLock<u128> = LazyLock::new(|| Uuid::now_v7().as_u128() >> 80 << 80);

pub fn id(number: u32) -> Uuid {
    Uuid::from_u128(*WRITTEN + 0x7000_8000_0000_0000_0000 + u128::from(number))
}

/// Written long before any window.
pub fn old_id(number: u32) -> Uuid {
    Uuid::from_u128(0x018f_0000_0000_7000_8000_0000_0000_0000 + u128::from(number))
}

pub async fn eventually<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let deadline = Instant::now() + DEADLINE;
    while !look().await {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl World {
    pub async fn with_partitions(partitions: i32) -> Self {
        let database = pg_test::database().await;
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic(TOPIC, partitions, 1).expect("a topic");
        let producer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .expect("a producer");
        Self { sql: database.client().await, database, cluster, producer }
    }

    pub async fn produce(&self, partition: i32, charge: &Charge) {
        let id = id(charge.event).to_string();
        let headers = [
            ("ce_id", id.as_bytes()),
            ("ce_type", b"ChargeCreated"),
            ("ce_time", b"2026-11-30T23:59:59.999999Z"),
        ];
        self.produce_raw(partition, &headers, Some(charge.payload().as_bytes())).await;
    }

    pub async fn produce_raw(&self, partition: i32, headers: Headers<'_>, payload: Option<&[u8]>) {
        let mut owned = OwnedHeaders::new();
        for (key, value) in headers {
            owned = owned.insert(Header { key, value: Some(*value) });
        }
        let record = FutureRecord { payload, ..FutureRecord::<[u8], [u8]>::to(TOPIC) };
        let record = record.partition(partition).key(b"key").headers(owned);
        let Ok(delivery) = self.producer.send_result(record) else { panic!("queue full") };
        delivery.await.expect("an answer").expect("an acknowledgement");
    }

    pub fn start(&self) -> Running {
        self.start_with(IssueReceipts, &[])
    }

    /// Further settings are environment variables.
    pub fn start_with<H: Handler>(&self, handler: H, more: &[(&str, &str)]) -> Running {
        // The mock cluster does not tell it.
        let mut env = BTreeMap::from([("ONCEBOX_INBOX_TOPIC_RETENTION", "7d")]);
        env.extend(more.iter().copied());
        self.start_told(handler, &env)
    }

    /// A consumer that asks the broker for the retention of the topic, in vain.
    pub fn start_asking_the_broker(&self) -> Running {
        self.start_told(IssueReceipts, &BTreeMap::new())
    }

    fn start_told<H: Handler>(&self, handler: H, more: &BTreeMap<&str, &str>) -> Running {
        let url = self.database.url();
        let brokers = self.cluster.bootstrap_servers();
        let mut env = BTreeMap::from([
            ("DATABASE_URL", &*url),
            ("KAFKA_BROKERS", &*brokers),
            // A transaction that the test holds open is not given up, however slow the machine is.
            ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "2m"),
            ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "2m"),
            ("ONCEBOX_CONSUMER_TRANSACTION_TIMEOUT", "2m"),
        ]);
        env.extend(more);
        let env: Vec<_> = env.into_iter().collect();
        let settings: Settings = settings::load(None, &env).expect("settings");
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let service =
            Inbox::build(&settings.inbox, NAME, handler, &registry, &readiness).expect("a service");
        let stop = CancellationToken::new();
        let task = tokio::spawn(service.run(stop.clone()));
        Running { registry, readiness, stop, task }
    }

    /// What others are refused from now on, or allowed again. Who is connected stays so.
    pub async fn allow_connections(&self, allowed: bool) {
        let elsewhere = pg_test::empty_database().await;
        let alter = format!("ALTER DATABASE {} ALLOW_CONNECTIONS {allowed}", self.database.name());
        elsewhere.client().await.batch_execute(&alter).await.expect(&alter);
    }

    pub async fn count(&self, from: &str) -> i64 {
        let row = self.sql.query_one(&format!("SELECT count(*) FROM {from}"), &[]).await;
        row.expect("a count").get(0)
    }

    pub async fn eventually_count(&self, from: &str, expected: i64) {
        let what = format!("{expected} rows: {from}");
        eventually(&what, || async { self.count(from).await == expected }).await;
    }

    /// The number and the sum of the daily totals, which must be on the events' day.
    pub async fn totals(&self) -> (i64, i64) {
        let totals =
            "SELECT coalesce(sum(charges), 0)::bigint, coalesce(sum(amount_cents), 0)::bigint
                      FROM daily_totals
                      WHERE tenant_id = 'default' AND day = '2026-11-30' AND currency = 'BRL'";
        let row = self.sql.query_one(totals, &[]).await.expect("totals");
        (row.get(0), row.get(1))
    }

    /// The offset the group goes on from; `None` before its first commit.
    pub async fn committed(&self, group: &str, partition: i32) -> Option<i64> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.cluster.bootstrap_servers()).set("group.id", group);
        let ask = move || {
            let client: BaseConsumer = config.create().expect("a client");
            let mut list = TopicPartitionList::new();
            list.add_partition(TOPIC, partition);
            let offsets = client.committed_offsets(list, DEADLINE).expect("offsets");
            offsets.elements()[0].offset().to_raw().filter(|offset| *offset >= 0)
        };
        tokio::task::spawn_blocking(ask).await.expect("an answer")
    }

    pub async fn eventually_committed(&self, partition: i32, expected: i64) {
        let what = format!("offset {expected} of partition {partition} is committed");
        eventually(&what, || async {
            self.committed("charge-consumer", partition).await == Some(expected)
        })
        .await;
    }

    /// From now on no member's offsets are committed, also not when it leaves its group.
    pub fn refuse_offsets(&self) {
        // More than there are seconds in a test, of which each brings a commit.
        let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 1000];
        self.cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    }

    pub fn allow_offsets(&self) {
        self.cluster.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    }

    pub async fn execute(&self, sql: &str) {
        self.sql.batch_execute(sql).await.expect(sql);
    }

    /// From now on a transaction that has written receipts stands still, until the test calls
    /// [`World::release`].
    pub async fn hold(&self) {
        self.execute(&format!(
            "SELECT pg_advisory_lock({HOLD});
             CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock_shared({HOLD}); RETURN NULL; END $$;
             CREATE OR REPLACE TRIGGER hold AFTER INSERT ON receipts
             FOR EACH STATEMENT EXECUTE FUNCTION hold()"
        ))
        .await;
    }

    pub async fn release(&self) {
        self.execute(&format!("SELECT pg_advisory_unlock({HOLD})")).await;
    }

    /// How many transactions stand still, at their effect or behind another one's inbox row.
    pub async fn waiting(&self) -> i64 {
        let waiting = "pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        self.count(waiting).await
    }

    pub async fn eventually_waiting(&self) {
        eventually("a transaction waits", || async { self.waiting().await == 1 }).await;
    }
}

pub struct Running {
    registry: Registry,
    pub readiness: Readiness,
    pub stop: CancellationToken,
    pub task: JoinHandle<Result<(), inbox::Error>>,
}

impl Running {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("no panic").expect("no error");
    }

    /// Ends it wherever it is, without a commit of anything.
    pub async fn crash(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }

    pub fn metric(&self, series: &str) -> f64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).expect("metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().expect("a number")
    }

    pub fn outcomes(&self) -> (f64, f64, f64) {
        let outcome = |label| self.metric(&format!("inbox_events_total{{outcome=\"{label}\"}}"));
        (outcome("processed"), outcome("duplicate"), outcome("dead_lettered"))
    }

    pub async fn eventually_ready(&self) {
        eventually("ready", || async { self.readiness.failing().is_empty() }).await;
    }

    pub async fn eventually_fails(&self, condition: &str) {
        eventually(&format!("{condition} fails"), || async {
            self.readiness.failing().iter().any(|(name, _)| *name == condition)
        })
        .await;
    }
}
