//! A topic read from one offset to another, without a group and without leaving a trace.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use settings::KafkaSecurity;

use crate::failure::Failure;

/// For one answer of a broker.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// After how long without a record, while some must come, the reading is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

settings::group! {
    /// Kafka, under the names that the services have for it. Only `outbox verify` needs it.
    pub struct KafkaSettings {
        /// Where to find the cluster.
        brokers: Option<String> = "kafka.brokers" env "KAFKA_BROKERS", optional, "host:port, comma separated";
        /// The topic that is verified when --topic does not say.
        topic: String = "kafka.topic", default "charges.events", "a topic's name";
        group security: KafkaSecurity;
    }
}

impl KafkaSettings {
    fn client(&self) -> Result<ClientConfig, Failure> {
        let Some(brokers) = &self.brokers else {
            return Err(Failure::Usage(
                "the topic is in Kafka: give KAFKA_BROKERS, or kafka.brokers in the file".into(),
            ));
        };
        let mut config: ClientConfig = self.security.properties().into_iter().collect();
        config
            .set("bootstrap.servers", brokers)
            .set("client.id", "oncebox")
            // Named because the client wants one; nothing joins it and nothing is committed.
            .set("group.id", "oncebox")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("allow.auto.create.topics", "false")
            .set("queued.max.messages.kbytes", "32768");
        Ok(config)
    }
}

/// What is read of a partition, and what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first offset that retention has left; 0 when it has deleted nothing.
    pub low: i64,
    /// The first offset to read.
    pub start: i64,
    /// The one after the last to read.
    pub end: i64,
    /// The one after the last there was when the reading began.
    pub high: i64,
}

pub struct Topic {
    consumer: StreamConsumer<Complaints>,
    name: String,
    /// Partitions that have not been read to their end.
    open: HashMap<i32, i64>,
}

impl Topic {
    /// # Errors
    /// When the settings are wrong. No broker is asked yet.
    pub fn new(settings: &KafkaSettings, name: &str) -> Result<Self, Failure> {
        let consumer = settings
            .client()?
            .create_with_context(Complaints::default())
            .map_err(|error| Failure::Usage(format!("the Kafka client refuses: {error}")))?;
        Ok(Self { consumer, name: name.to_owned(), open: HashMap::new() })
    }

    /// Goes to the first record of `from` or later in each partition, to read those before `to`, by
    /// the records' own times. Blocks while the brokers are asked.
    ///
    /// # Errors
    /// When they do not answer, or have no such topic.
    pub fn seek(
        &mut self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<HashMap<i32, Range>, Failure> {
        let mut ranges = HashMap::new();
        let mut assignment = TopicPartitionList::new();
        for partition in self.partitions()? {
            let watermarks = self.consumer.fetch_watermarks(&self.name, partition, ANSWER_LIMIT);
            let (low, high) = watermarks.map_err(|error| self.away(&error))?;
            let start = self.offset_at(partition, from)?.unwrap_or(low).clamp(low, high);
            let end = self.offset_at(partition, to)?.unwrap_or(high).clamp(start, high);
            ranges.insert(partition, Range { low, start, end, high });
            if start < end {
                self.open.insert(partition, end);
                let added =
                    assignment.add_partition_offset(&self.name, partition, Offset::Offset(start));
                added.map_err(|error| self.away(&error))?;
            }
        }
        self.consumer.assign(&assignment).map_err(|error| self.away(&error))?;
        Ok(ranges)
    }

    fn partitions(&self) -> Result<Vec<i32>, Failure> {
        let metadata = self.consumer.fetch_metadata(Some(&self.name), ANSWER_LIMIT);
        let metadata = metadata.map_err(|error| self.away(&error))?;
        let found = metadata.topics().iter().find(|topic| topic.name() == self.name);
        match found.map(|topic| (topic.error().map(RDKafkaErrorCode::from), topic.partitions())) {
            Some((None, partitions)) if !partitions.is_empty() => {
                Ok(partitions.iter().map(|partition| partition.id()).collect())
            }
            Some((Some(RDKafkaErrorCode::UnknownTopicOrPartition), _)) | None => {
                Err(Failure::Refused(format!(
                    "Kafka has no topic {}: say which one with --topic",
                    self.name
                )))
            }
            Some((error, _)) => Err(Failure::Refused(format!(
                "Kafka says nothing of the topic {}: {}; see what this user may read",
                self.name,
                error.map_or("it has no partitions".into(), |code| code.to_string()),
            ))),
        }
    }

    /// `None` when there is no record so late.
    fn offset_at(&self, partition: i32, time: Option<Timestamp>) -> Result<Option<i64>, Failure> {
        let Some(time) = time else { return Ok(None) };
        let mut asked = TopicPartitionList::new();
        // Before the epoch is before all records.
        let millis = Offset::Offset(time.as_millisecond().max(0));
        let added = asked.add_partition_offset(&self.name, partition, millis);
        added.map_err(|error| self.away(&error))?;
        let found = self.consumer.offsets_for_times(asked, ANSWER_LIMIT);
        let found = found.map_err(|error| self.away(&error))?;
        Ok(found.elements().first().and_then(|element| match element.offset() {
            Offset::Offset(offset) => Some(offset),
            Offset::End => Some(i64::MAX),
            _ => None,
        }))
    }

    /// The next record to read; `None` at the end.
    ///
    /// # Errors
    /// When the brokers stop answering.
    pub async fn next(&mut self) -> Result<Option<BorrowedMessage<'_>>, Failure> {
        loop {
            if self.open.is_empty() {
                return Ok(None);
            }
            let received = tokio::time::timeout(SILENCE_LIMIT, self.consumer.recv()).await;
            let message = match received {
                Err(_) => {
                    return Err(self.away(&KafkaError::Global(RDKafkaErrorCode::OperationTimedOut)));
                }
                Ok(Err(KafkaError::PartitionEOF(partition))) => {
                    self.open.remove(&partition);
                    continue;
                }
                // The client asks for the group that it was made to name. Nobody may need to join it.
                Ok(Err(error)) if of_the_group(&error) => continue,
                Ok(Err(error)) => return Err(self.away(&error)),
                Ok(Ok(message)) => message,
            };
            let Some(end) = self.open.get(&message.partition()).copied() else { continue };
            if message.offset() + 1 >= end {
                self.open.remove(&message.partition());
            }
            if message.offset() < end {
                return Ok(Some(message));
            }
        }
    }

    fn away(&self, error: &KafkaError) -> Failure {
        let complaint = &self.consumer.context().0;
        let complaint = complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = error.to_string();
        Failure::Kafka(complaint.map_or(reason.clone(), |it| format!("{reason} ({it})")))
    }
}

fn of_the_group(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::GroupAuthorizationFailed)
}

/// The last thing that the client complained about: a wrong password shows there only.
#[derive(Default)]
struct Complaints(Mutex<Option<String>>);

impl ClientContext for Complaints {
    fn error(&self, error: KafkaError, reason: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // That no broker is left says less than what became of the last one.
        if last.is_none() || error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *last = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for Complaints {}
