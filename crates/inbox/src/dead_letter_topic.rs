//! Dead letters to a topic, for whoever wants to read them there. Each is in its table first, and
//! stays in it: the topic is a copy, and gets each letter at least once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use store::Connection;
use store::dead_letters::{self, Letter};
use uuid::Uuid;

use crate::dead_letter::read_headers;
use crate::follow_up::{FollowUp, Undone};
use crate::settings::KafkaSettings;
use crate::subscription;

/// When a record that is not acknowledged counts as not published. Below the limit of an attempt, so
/// that Kafka's own reason is told.
const MESSAGE_TIMEOUT_MS: &str = "5000";
/// How long a topic that is not there may still turn up; a topic's first record waits for so long.
const TOPIC_WAIT_MS: &str = "2500";
/// The topic decides how large a record may be.
const RECORD_BYTES_MAX: &str = "536870912";

pub struct DeadLetterTopic {
    topic: String,
    config: ClientConfig,
    /// Made when it is needed, and anew after a failure: a new one has no fatal error, and has not
    /// noted that the topic is missing.
    producer: Mutex<Option<Arc<Producer>>>,
}

impl DeadLetterTopic {
    pub fn new(topic: &str, settings: &KafkaSettings, application: &str) -> Self {
        let mut config = subscription::connection(settings);
        config
            .set("client.id", application)
            // Brings acks=all, and no copies by the client's own retries.
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.timeout.ms", MESSAGE_TIMEOUT_MS)
            .set("allow.auto.create.topics", "false")
            .set("topic.metadata.propagation.max.ms", TOPIC_WAIT_MS)
            // The partitioner of the Java clients, as the relay's.
            .set("partitioner", "murmur2_random")
            // Brokers refuse batches as too large, not records. Alone, none pays for another.
            .set("batch.num.messages", "1")
            .set("message.max.bytes", RECORD_BYTES_MAX);
        Self { topic: topic.into(), config, producer: Mutex::default() }
    }

    fn producer(&self) -> Result<Arc<Producer>, KafkaError> {
        let mut producer = locked(&self.producer);
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let made = Arc::new(Producer::new(&self.config)?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Names the topic, and what to do.
    fn explain(&self, error: &KafkaError, complaint: Option<&str>) -> String {
        use RDKafkaErrorCode as Code;
        let topic = &self.topic;
        let next = match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition) => {
                "create it"
            }
            Some(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => {
                "give this user the right to write to it"
            }
            Some(Code::MessageSizeTooLarge) => "raise its max.message.bytes",
            _ => "see whether its brokers are there",
        };
        let complaint = complaint.map(|text| format!(" ({text})")).unwrap_or_default();
        format!("dead letters do not get into the topic {topic}: {error}{complaint}; {next}")
    }
}

impl FollowUp for DeadLetterTopic {
    type Job = Letter;

    async fn read(
        &self,
        connection: &Connection,
        ids: &[Uuid],
    ) -> Result<Vec<(Uuid, Letter)>, store::Error> {
        let letters = dead_letters::read(connection, ids).await?;
        Ok(letters.into_iter().map(|letter| (letter.id, letter)).collect())
    }

    async fn perform(&self, letter: &Letter) -> Result<(), Undone> {
        let producer =
            self.producer().map_err(|error| Undone::Later(self.explain(&error, None)))?;
        let mut record = FutureRecord::to(&self.topic).headers(headers(letter));
        record.key = letter.key.as_deref();
        record.payload = letter.payload.as_deref();
        match producer.client().send(record, Duration::ZERO).await {
            Ok(_placed) => Ok(()),
            Err((error, _record)) => {
                *locked(&self.producer) = None;
                let complaint = locked(&producer.complaint.0).clone();
                Err(Undone::Later(self.explain(&error, complaint.as_deref())))
            }
        }
    }
}

/// What the record had, then where it came from and why it is here.
fn headers(letter: &Letter) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new();
    for header in read_headers(&letter.headers) {
        let value = header.value.as_deref();
        headers = headers.insert(Header { key: &header.name, value });
    }
    for (key, value) in [
        ("origin_topic", letter.topic.clone()),
        ("origin_partition", letter.partition.to_string()),
        ("origin_offset", letter.offset.to_string()),
        ("origin_timestamp", letter.timestamp.to_string()),
        ("dead_letter_id", letter.id.to_string()),
        ("dead_letter_consumer", letter.consumer.clone()),
        ("dead_letter_reason", letter.reason.clone()),
        ("dead_letter_attempts", letter.attempts.to_string()),
        ("dead_letter_time", letter.created_at.to_string()),
    ] {
        headers = headers.insert(Header { key, value: Some(&value) });
    }
    headers
}

/// One client. Ending it takes up to seconds, so a thread waits for it.
struct Producer {
    /// `None` only while it is dropped.
    client: Option<FutureProducer<Complaint>>,
    complaint: Complaint,
}

impl Producer {
    fn new(config: &ClientConfig) -> Result<Self, KafkaError> {
        let complaint = Complaint::default();
        let client = Some(config.create_with_context(complaint.clone())?);
        Ok(Self { client, complaint })
    }

    fn client(&self) -> &FutureProducer<Complaint> {
        self.client.as_ref().expect("invariant: only drop takes it")
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let client = self.client.take();
        std::thread::spawn(move || drop(client));
    }
}

/// The last error that was about no record, such as a wrong password: records only time out then.
#[derive(Clone, Default)]
struct Complaint(Arc<Mutex<Option<String>>>);

impl ClientContext for Complaint {
    fn error(&self, error: KafkaError, reason: &str) {
        let mut last = locked(&self.0);
        // That no broker is left says less than what became of the last one.
        if last.is_none() || error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *last = Some(reason.to_owned());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment, so a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
