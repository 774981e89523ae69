//! The relay's settings, and which of them must fit together.

use std::time::Duration;

use settings::{ByteSize, Group, KafkaSecurity, Reader};

use crate::retention::RetentionSettings;
use crate::routes::{TopicsByType, known_topics, valid_topic};

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Settings {
    pub database: store::DatabaseSettings,
    pub kafka: KafkaSettings,
    pub relay: RelaySettings,
    pub retention: RetentionSettings,
    pub admin: telemetry::AdminSettings,
    pub log: telemetry::LogSettings,
    pub shutdown: shutdown::ShutdownSettings,
}

settings::group! {
    /// How rows are read and how many may be on their way.
    pub struct RelaySettings {
        /// Most rows of one read, and of one mark. About 500 to 1000 is the knee: more is slower to
        /// come round and hardly cheaper a row.
        batch: u32 = "relay.batch", default "1000", "an integer from 32 to 10000", range 32..=10_000;
        /// Most rows in memory for each topic: read, sent or acknowledged, and not yet marked.
        in_flight_rows: u32 = "relay.in_flight_rows", default "5000", "an integer from 100 to 100000", range 100..=100_000;
        /// Most bytes of payload in memory for each topic, give or take one row.
        in_flight_bytes: ByteSize = "relay.in_flight_bytes", default "16MiB", "a size from 1MiB to 1GiB",
            range ByteSize::mib(1)..=ByteSize::mib(1024);
        /// How long a relay that says nothing keeps its buckets. After a kill they are idle for so long.
        lease: Duration = "relay.lease", default "4s", "a duration from 500ms to 5m",
            range Duration::from_millis(500)..=Duration::from_secs(300);
        /// How several relays work together: fair, each has its share of the buckets; or single, the
        /// oldest has them all and the others stand by.
        sharing: Sharing = "relay.sharing", default "fair", "fair or single";
        /// Which events keep their order: those of one aggregate, or none. With none, they are
        /// published faster where one aggregate has many, and no row waits behind a parked one.
        ordering: Ordering = "relay.ordering", default "aggregate", "aggregate or none";
        /// How often an idle relay looks for new rows.
        poll_idle: Duration = "relay.poll_idle", default "100ms", "a duration from 1ms to 10s",
            range Duration::from_millis(1)..=Duration::from_secs(10);
        /// How often the table-wide gauges are measured.
        backlog_interval: Duration = "relay.backlog_interval", default "5s", "a duration from 100ms to 5m",
            range Duration::from_millis(100)..=Duration::from_secs(300);
        /// The `ce_source` of every event.
        source: String = "relay.source", default "/oncebox/charges", "a URI reference";
    }
}

settings::choice! {
    /// How several relays work together.
    pub enum Sharing {
        Fair = "fair",
        Single = "single",
    }
}

settings::choice! {
    /// Which events keep their order.
    pub enum Ordering {
        Aggregate = "aggregate",
        None = "none",
    }
}

settings::choice! {
    /// How batches are compressed.
    pub enum Compression {
        None = "none",
        Lz4 = "lz4",
        Zstd = "zstd",
    }
}

settings::group! {
    /// Kafka.
    pub struct KafkaSettings {
        /// Where to find the cluster.
        brokers: String = "kafka.brokers" env "KAFKA_BROKERS", required, "host:port, comma separated";
        /// The topic that events go to, unless kafka.routes says otherwise. It must exist: topics are
        /// never created.
        topic: String = "kafka.topic", default "charges.events", "letters, digits, dots, underscores and hyphens, at most 249",
            check valid_topic;
        /// The topics of event types that go elsewhere.
        routes: TopicsByType = "kafka.routes", default "", "TYPE=TOPIC, comma separated";
        /// The topics for which later rows of an aggregate go on while one is parked; for all others
        /// they wait.
        pass_parked: Vec<String> = "kafka.pass_parked", default "", "topics, comma separated";
        /// When a record that Kafka has not acknowledged is given up; its row stays pending.
        message_timeout: Duration = "kafka.message_timeout", default "2500ms", "a duration from 100ms to 4m",
            range Duration::from_millis(100)..=Duration::from_secs(240);
        /// Largest record. A larger row is parked. No more than the topic's max.message.bytes.
        message_bytes_max: ByteSize = "kafka.message_bytes_max", default "1000000B", "a size from 1KiB to 512MiB",
            range ByteSize::kib(1)..=ByteSize::mib(512);
        /// How long a batch waits for more records.
        linger: Duration = "kafka.linger", default "1ms", "a duration from 0ms to 1s",
            range Duration::ZERO..=Duration::from_secs(1);
        /// Most records in the Kafka client's own queue.
        queue_records: u32 = "kafka.queue_records", default "100000", "an integer from 1 to 1000000", range 1..=1_000_000;
        /// How batches are compressed.
        compression: Compression = "kafka.compression", default "lz4", "none, lz4 or zstd";
        group security: KafkaSecurity;
    }
    check known_topics
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        reader.default("admin.listen", "127.0.0.1:9465");
        let (database, kafka, relay): (Option<store::DatabaseSettings>, _, _) =
            (reader.group(), reader.group(), reader.group());
        let (admin, log, shutdown) = (reader.group(), reader.group(), reader.group());
        let retention = reader.group();
        let (kafka, relay): (KafkaSettings, RelaySettings) = (kafka?, relay?);
        let mut fits = true;
        // A record is sent only while the lease outlasts its time-out, and leases are renewed
        // every eighth: with less than this between the two, hardly anything could be sent.
        if kafka.message_timeout > relay.lease * 3 / 4 {
            reader.problem(
                "kafka.message_timeout",
                "must be at most three quarters of relay.lease: a record must be settled before another relay may take its bucket",
            );
            fits = false;
        }
        if kafka.linger >= kafka.message_timeout {
            reader.problem("kafka.linger", "must be less than kafka.message_timeout");
            fits = false;
        }
        // The keeper of the leases and the gauges have connections of their own.
        let connections = 2 * kafka.topics().len() + 2;
        if database.as_ref().is_some_and(|database| (database.pool_max as usize) < connections) {
            reader.problem(
                "database.pool_max",
                format!(
                    "must be at least {connections}: two connections for each topic and two more"
                ),
            );
            fits = false;
        }
        if relay.batch > relay.in_flight_rows {
            reader.problem("relay.batch", "must be at most relay.in_flight_rows");
            fits = false;
        }
        if !fits {
            return None;
        }
        Some(Self {
            database: database?,
            kafka,
            relay,
            retention: retention?,
            admin: admin?,
            log: log?,
            shutdown: shutdown?,
        })
    }
}
