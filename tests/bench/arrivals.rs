//! What a consumer on this machine sees of a topic, and when.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use harness::postgres::connect;
use harness::topic::Topic;
use hdrhistogram::Histogram;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use uuid::Uuid;

/// A consumer that notes each event's arrival, on a thread of its own.
pub struct Arrivals {
    over: Arc<AtomicBool>,
    arrived: Arc<AtomicUsize>,
    seen: tokio::task::JoinHandle<Result<Seen>>,
}

/// What is published and does not arrive within this time is lost.
const ARRIVED_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Seen {
    /// In seconds since 1970, by outbox id; the first copy counts.
    arrived: HashMap<Uuid, f64>,
    copies: u64,
}

/// From the commit of a charge to the consumer.
pub struct Latency {
    micros: Histogram<u64>,
    /// Copies of events that had arrived before.
    pub duplicates: u64,
    pub lost: u64,
}

impl Arrivals {
    /// Watches from the beginning of the topic on, so that nothing is missed before it is there.
    pub fn watch(topic: &Topic) -> Result<Self> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &topic.brokers)
            .set("group.id", "bench")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "100")
            .set("reconnect.backoff.max.ms", "1000")
            .create()?;
        let mut all = TopicPartitionList::new();
        for partition in 0..topic.partitions {
            all.add_partition_offset(&topic.name, partition, Offset::Beginning)?;
        }
        consumer.assign(&all)?;
        let over = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicUsize::new(0));
        let (stop, count) = (Arc::clone(&over), Arc::clone(&arrived));
        let seen = tokio::task::spawn_blocking(move || note(&consumer, &stop, &count));
        Ok(Self { over, arrived, seen })
    }

    /// Waits until all that is in the outbox has arrived, ends, and holds the one against the other.
    /// Latencies are those of events from `after` on, in seconds since 1970: what was before has
    /// warmed everything up.
    pub async fn latency(self, database_url: &str, after: f64) -> Result<Latency> {
        let client = connect(&database_url.parse()?).await?;
        let sql = "SELECT id, extract(epoch FROM created_at)::float8 FROM outbox";
        let rows = client.query(sql, &[]).await?;
        let deadline = Instant::now() + ARRIVED_WITHIN;
        while self.arrived.load(Ordering::Relaxed) < rows.len() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        self.over.store(true, Ordering::Relaxed);
        let seen = self.seen.await??;
        let mut latency = Latency { micros: Histogram::new(3)?, duplicates: seen.copies, lost: 0 };
        for row in rows {
            match seen.arrived.get(&row.get(0)) {
                Some(_) if row.get::<_, f64>(1) < after => {}
                Some(arrived) => {
                    let took = Duration::try_from_secs_f64(arrived - row.get::<_, f64>(1));
                    let micros = u64::try_from(took.unwrap_or_default().as_micros())?;
                    latency.micros.record(micros.max(1))?;
                }
                None => latency.lost += 1,
            }
        }
        Ok(latency)
    }
}

impl Latency {
    #[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^52 µs")]
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.micros.value_at_quantile(quantile) as f64 / 1000.0
    }
}

pub fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

fn note(consumer: &BaseConsumer, over: &AtomicBool, arrived: &AtomicUsize) -> Result<Seen> {
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        // An error is a broker that is away: the client comes back by itself.
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else { continue };
        let now = now()?;
        let headers = message.headers().context("an event without headers")?;
        let id =
            headers.iter().find(|header| header.key == "ce_id").and_then(|header| header.value);
        let id = Uuid::try_parse_ascii(id.context("an event without ce_id")?)?;
        match seen.arrived.entry(id) {
            Entry::Occupied(_) => seen.copies += 1,
            Entry::Vacant(first) => {
                first.insert(now);
                arrived.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(seen)
}
