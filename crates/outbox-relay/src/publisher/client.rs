//! One librdkafka producer: its settings, its thread, and what it reports.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{Producer as _, ProducerContext, PurgeConfig, ThreadedProducer};
use tokio::sync::Notify;

use super::{Batching, Failure};
use crate::settings::KafkaSettings;

/// What became of a record.
#[derive(Debug)]
pub struct Delivery {
    pub seq: i64,
    pub batching: Batching,
    pub result: Result<Placed, Failure>,
}

/// Where Kafka put a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub partition: i32,
    pub offset: i64,
}

pub(super) struct Client {
    /// `None` only while it is dropped.
    producer: Option<Arc<ThreadedProducer<Context>>>,
    pub deliveries: Arc<Deliveries>,
}

impl Client {
    pub fn new(settings: &KafkaSettings, batching: Batching) -> Result<Self, KafkaError> {
        let deliveries = Arc::new(Deliveries::default());
        let context =
            Context { batching, deliveries: Arc::clone(&deliveries), last_error: Mutex::default() };
        let config = config(settings, batching);
        let producer = ThreadedProducer::from_config_and_context(&config, context)?;
        Ok(Self { producer: Some(Arc::new(producer)), deliveries })
    }

    pub fn producer(&self) -> &Arc<ThreadedProducer<Context>> {
        self.producer.as_ref().expect("invariant: only drop takes it")
    }
}

/// Throws away what is queued. Ending a client takes up to seconds, so a thread waits for it.
impl Drop for Client {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            producer.purge(PurgeConfig::default().queue().inflight());
            std::thread::spawn(move || drop(producer));
        }
    }
}

fn config(settings: &KafkaSettings, batching: Batching) -> ClientConfig {
    let mut config: ClientConfig = settings.security.properties().into_iter().collect();
    let timeout_ms = settings.message_timeout.as_millis();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("client.id", "outbox-relay")
        // Idempotence brings acks=all, endless retries and at most five requests on their way,
        // which together keep each partition's order.
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", timeout_ms.to_string())
        // The partitioner of the Java clients: their producers and ours put a key on the same
        // partition.
        .set("partitioner", "murmur2_random")
        .set("compression.type", settings.compression.as_str())
        .set("linger.ms", settings.linger.as_millis().to_string())
        .set("message.max.bytes", settings.message_bytes_max.bytes().to_string())
        // A missing topic is an error of the destination, and one that shows within the time-out
        // (30 s otherwise).
        .set("allow.auto.create.topics", "false")
        .set("topic.metadata.propagation.max.ms", (timeout_ms / 2).max(1).to_string())
        // A broker that is back is found within a second, not ten.
        .set("reconnect.backoff.max.ms", "1000")
        // The relay bounds what is in flight, also by bytes; this is a second line.
        .set("queue.buffering.max.messages", settings.queue_records.to_string())
        .set("queue.buffering.max.kbytes", "2097151")
        .set("statistics.interval.ms", "0");
    if batching == Batching::Alone {
        config.set("batch.num.messages", "1");
    }
    config
}

/// A record's seq as librdkafka carries it. Identity columns start at 1 and rise.
pub(super) fn opaque(seq: i64) -> usize {
    usize::try_from(seq).expect("invariant: seq is a positive identity, and usize has 64 bits")
}

fn seq(opaque: usize) -> i64 {
    i64::try_from(opaque).expect("invariant: the opaque was made of a seq")
}

/// What librdkafka calls back, on the producer's polling thread.
pub(super) struct Context {
    batching: Batching,
    deliveries: Arc<Deliveries>,
    last_error: Mutex<Option<String>>,
}

impl Context {
    pub fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            reason,
            "the Kafka client reports"
        );
        let mut last = locked(&self.last_error);
        // That no broker is left says less than what became of the last one.
        if last.is_none() || error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *last = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let result = match result {
            Ok(message) => Ok(Placed { partition: message.partition(), offset: message.offset() }),
            // "Possibly persisted" is among these: not published, then.
            Err((error, _)) => Err(Failure::from_kafka(error)),
        };
        if result.is_ok() {
            *locked(&self.last_error) = None;
        }
        self.deliveries.push(Delivery { seq: seq(opaque), batching: self.batching, result });
    }
}

/// Deliveries on their way from the producer's thread to the relay. No more than there are records
/// in flight, which the relay bounds.
#[derive(Default)]
pub(super) struct Deliveries {
    settled: Mutex<Vec<Delivery>>,
    arrival: Notify,
}

impl Deliveries {
    fn push(&self, delivery: Delivery) {
        locked(&self.settled).push(delivery);
        self.arrival.notify_one();
    }

    pub fn take(&self) -> Vec<Delivery> {
        mem::take(&mut locked(&self.settled))
    }

    pub fn len(&self) -> usize {
        locked(&self.settled).len()
    }

    pub async fn arrived(&self) {
        self.arrival.notified().await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment or push, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
