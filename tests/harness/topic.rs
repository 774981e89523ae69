//! A Kafka topic: made, read from its beginning to its end, and removed.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders};
use rdkafka::metadata::MetadataPartition;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::eventually::eventually;

/// For one request to a broker that is there but busy.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// For reading all of a topic.
const READ_LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Topic {
    pub brokers: String,
    pub name: String,
    pub partitions: i32,
}

/// Where a partition is.
#[derive(Clone, Copy, Debug)]
pub struct Replication {
    /// The id of a broker; negative when there is none.
    pub leader: i32,
    /// How many brokers have all that is acknowledged.
    pub in_sync: usize,
}

/// One record as Kafka has it.
#[derive(Clone, Debug)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: Vec<u8>,
    pub headers: BTreeMap<String, String>,
}

impl Record {
    /// A header, empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The id of the outbox row it was made from.
    pub fn event_id(&self) -> &str {
        self.header("ce_id")
    }
}

impl Topic {
    /// Creates it, or takes the one that is there.
    pub async fn create(brokers: &str, name: &str, partitions: i32, replicas: i32) -> Result<Self> {
        let admin = admin(brokers)?;
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT));
        let results = admin.create_topics([&new], &options).await.context("creating a topic")?;
        for result in results {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => anyhow::bail!("creating the topic {name}: {code}"),
            }
        }
        let mut topic = Self { brokers: brokers.to_owned(), name: name.to_owned(), partitions };
        // It is usable once each partition has a leader.
        topic.partitions = eventually(REQUEST_LIMIT, "each partition has a leader", async || {
            let all = topic.replication().await?;
            let led = !all.is_empty() && all.iter().all(|partition| partition.leader >= 0);
            Ok(led.then_some(i32::try_from(all.len())?))
        })
        .await?;
        Ok(topic)
    }

    pub async fn delete(&self) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT));
        for result in admin(&self.brokers)?.delete_topics(&[&self.name], &options).await? {
            result.map_err(|(name, code)| anyhow::anyhow!("deleting the topic {name}: {code}"))?;
        }
        Ok(())
    }

    /// What the topic's retention does to its oldest records.
    pub async fn delete_before(&self, partition: i32, offset: i64) -> Result<()> {
        let mut before = TopicPartitionList::new();
        before.add_partition_offset(&self.name, partition, Offset::Offset(offset))?;
        let options = AdminOptions::new().operation_timeout(Some(REQUEST_LIMIT));
        let deleted = admin(&self.brokers)?.delete_records(&before, &options).await?;
        deleted.elements().iter().try_for_each(|it| it.error().context("deleting records"))
    }

    /// One record as any producer may write it, acknowledged; its offset.
    pub async fn produce(
        &self,
        partition: i32,
        key: &str,
        headers: &[(&str, &[u8])],
        value: Option<&[u8]>,
    ) -> Result<i64> {
        let producer: FutureProducer =
            ClientConfig::new().set("bootstrap.servers", &self.brokers).create()?;
        let headers = headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
            all.insert(Header { key, value: Some(*value) })
        });
        let record = FutureRecord { payload: value, ..FutureRecord::to(&self.name) };
        let record = record.partition(partition).key(key).headers(headers);
        let sent = producer.send(record, REQUEST_LIMIT).await;
        let placed = sent.map_err(|(error, _)| error).context("producing a record")?;
        Ok(placed.offset)
    }

    /// A copy of a record that was read.
    pub async fn produce_again(&self, record: &Record, partition: i32) -> Result<i64> {
        let headers = record.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let headers: Vec<_> = headers.collect();
        self.produce(partition, &record.key, &headers, Some(&record.value)).await
    }

    /// Every record from the beginning to where the topic ends now, partition by partition.
    pub async fn read_all(&self) -> Result<Vec<Record>> {
        let topic = self.clone();
        tokio::task::spawn_blocking(move || topic.read_all_blocking()).await?
    }

    fn read_all_blocking(&self) -> Result<Vec<Record>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            // Required by the client; nothing is committed and no group is joined.
            .set("group.id", "harness-reader")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "false")
            .create()?;
        let mut behind = HashSet::new();
        let mut ends = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for partition in 0..self.partitions {
            let watermarks = consumer.fetch_watermarks(&self.name, partition, REQUEST_LIMIT);
            let (low, high) = watermarks.context("asking for the end of a partition")?;
            ends.insert(partition, high);
            if low < high {
                behind.insert(partition);
                assignment.add_partition_offset(&self.name, partition, Offset::Offset(low))?;
            }
        }
        consumer.assign(&assignment)?;
        let deadline = Instant::now() + READ_LIMIT;
        let mut records = Vec::new();
        while !behind.is_empty() {
            ensure!(Instant::now() < deadline, "{} is not read within {READ_LIMIT:?}", self.name);
            let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
            let message = message.context("reading a topic")?;
            let record = record(&message);
            if record.offset + 1 >= ends[&record.partition] {
                behind.remove(&record.partition);
            }
            // A partition may have grown since; what came later belongs to the next reading.
            if record.offset < ends[&record.partition] {
                records.push(record);
            }
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        Ok(records)
    }

    /// Of each partition, in their order.
    pub async fn replication(&self) -> Result<Vec<Replication>> {
        let topic = self.clone();
        let ask = move || -> Result<Vec<Replication>> {
            let client: BaseConsumer =
                ClientConfig::new().set("bootstrap.servers", &topic.brokers).create()?;
            let metadata = client.fetch_metadata(Some(&topic.name), REQUEST_LIMIT)?;
            let partitions = metadata.topics().first().map_or(&[][..], |it| it.partitions());
            let mut sorted: Vec<_> = partitions.iter().collect();
            sorted.sort_by_key(|partition| partition.id());
            let of = |it: &&MetadataPartition| Replication {
                leader: it.leader(),
                in_sync: it.isr().len(),
            };
            Ok(sorted.iter().map(of).collect())
        };
        tokio::task::spawn_blocking(ask).await?
    }
}

fn admin(brokers: &str) -> Result<AdminClient<DefaultClientContext>> {
    let admin = ClientConfig::new().set("bootstrap.servers", brokers).create();
    admin.context("a Kafka admin client")
}

fn record(message: &rdkafka::message::BorrowedMessage<'_>) -> Record {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers().into_iter().flat_map(Headers::iter);
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(text).unwrap_or_default(),
        value: message.payload().unwrap_or_default().to_vec(),
        headers: headers
            .map(|header| (header.key.to_owned(), header.value.map(text).unwrap_or_default()))
            .collect(),
    }
}
