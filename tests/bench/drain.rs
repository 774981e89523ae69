//! P4: how fast a backlog leaves the outbox, beside the statements alone and Kafka alone.
//!
//! `nowhere` is librdkafka's mock cluster in this process: the relay speaks Kafka to it over TCP, and
//! next to nothing is done with the records.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use harness::service::Service;
use harness::topic::Topic;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

use crate::Effort;
use crate::backlog::{self, Backlog};
use crate::claim::{self, Marking};
use crate::machine::{Usage, peak_memory};
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

const PARTITIONS: i32 = 3;
/// A drain that takes longer is stuck.
const DRAINED_WITHIN: Duration = Duration::from_secs(300);
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Looking costs the relay a little, too.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
enum Arm {
    Claim(Marking),
    ToNowhere,
    ToKafka,
    KafkaAlone,
}

const ARMS: [(&str, Arm); 6] = [
    ("one UPDATE a row, not sent", Arm::Claim(Marking::UpdateEach)),
    ("one UPDATE a batch, not sent", Arm::Claim(Marking::UpdateBatch)),
    ("DELETE, not sent", Arm::Claim(Marking::Delete)),
    ("relay to nowhere", Arm::ToNowhere),
    ("relay to Kafka", Arm::ToKafka),
    ("librdkafka alone to Kafka", Arm::KafkaAlone),
];

pub async fn run(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let product = Backlog::open(rig.database().await?).await?;
    let reference = Backlog::open(rig.database().await?).await?;
    reference.client.batch_execute(claim::INDEX).await?;
    let mock = MockCluster::new(1)?;
    mock.create_topic("nowhere", PARTITIONS, 1)?;
    let nowhere = Topic {
        brokers: mock.bootstrap_servers(),
        name: "nowhere".to_owned(),
        partitions: PARTITIONS,
    };

    let mut rates: [Vec<f64>; 6] = Default::default();
    let mut memory = Vec::new();
    for round in 1..=effort.rounds {
        let kafka = rig.topic(PARTITIONS).await?;
        for ((name, arm), rates) in ARMS.iter().zip(&mut rates) {
            let usage = Usage::now()?;
            let rate = match arm {
                Arm::Claim(marking) => {
                    reference.fill(effort.backlog).await?;
                    claim::rate(&reference.url, effort.round, *marking).await?
                }
                Arm::ToNowhere | Arm::ToKafka => {
                    product.fill(effort.backlog).await?;
                    let to = if let Arm::ToKafka = arm { &kafka } else { &nowhere };
                    let relay = rig.relay("bench-relay", &product.url, to).await?;
                    memory.push(drain(relay, effort.backlog).await?);
                    product.rate().await?
                }
                Arm::KafkaAlone => produce(kafka.clone(), effort.backlog).await?,
            };
            let rounds = effort.rounds;
            report.say(&format!("     p4 round {round} of {rounds}: {name} {rate:.0} rows/s"));
            usage.tell(report, name)?;
            rates.push(rate);
        }
        kafka.delete().await?;
    }
    tell(&rates, memory, report);
    Ok(())
}

fn tell(rates: &[Vec<f64>; 6], memory: Vec<f64>, report: &mut Report) {
    for ((name, _), rates) in ARMS.iter().zip(rates) {
        report.figure("p4", *name, "rows/s", Series::of(rates.iter().copied()));
    }
    let [each, batch, delete, nowhere, kafka, produce] = rates;
    let ratio = |a: &[f64], b: &[f64]| Series::of(a.iter().zip(b).map(|(a, b)| a / b));
    let ceiling: Vec<f64> = batch.iter().zip(produce).map(|(a, b)| a.min(*b)).collect();
    let (nowhere_each, nowhere_delete) = (ratio(nowhere, each), ratio(nowhere, delete));
    report.against("p4", "to nowhere ÷ one UPDATE a row", "×", nowhere_each, Bar::AtLeast(10.0));
    report.against("p4", "to nowhere ÷ DELETE", "×", nowhere_delete, Bar::AtLeast(0.75));
    let share = ratio(kafka, &ceiling);
    report.against("p4", "to Kafka ÷ min(a batch, librdkafka)", "×", share, Bar::AtLeast(0.8));
    let kafka = Series::of(kafka.iter().copied());
    report.against("p4", "relay to Kafka", "rows/s", kafka, Bar::AtLeast(90_000.0));
    let memory = Series::of(memory);
    report.against("p4", "memory of a relay with this backlog", "MB", memory, Bar::AtMost(40.0));
}

/// Until the backlog is published and marked; the relay's peak memory, in MB.
pub async fn drain(mut relay: Service, rows: i64) -> Result<f64> {
    let deadline = Instant::now() + DRAINED_WITHIN;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    while relay.metric("outbox_published_total", &[]).await? < rows as f64 {
        ensure!(Instant::now() < deadline, "the backlog is not gone within {DRAINED_WITHIN:?}");
        tokio::time::sleep(LOOK).await;
    }
    let memory = peak_memory(relay.pid().context("the relay has ended")?)?;
    // It ends when what was published last is marked.
    relay.stop(STOP_WITHIN).await?;
    Ok(memory)
}

/// Sends as many records of the same size as fast as the client can; records a second.
async fn produce(topic: Topic, records: i64) -> Result<f64> {
    tokio::task::spawn_blocking(move || {
        let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
            .set("bootstrap.servers", &topic.brokers)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("partitioner", "murmur2_random")
            .set("compression.type", "lz4")
            .set("linger.ms", "1")
            .create()?;
        let start = Instant::now();
        for number in 0..records {
            let (key, payload) = (backlog::aggregate_id(number), backlog::payload(number));
            let mut record = BaseRecord::to(&topic.name).key(&key).payload(&payload);
            loop {
                match producer.send(record) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                        record = back;
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err((error, _)) => bail!(error),
                }
            }
        }
        producer.flush(DRAINED_WITHIN)?;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        Ok(records as f64 / start.elapsed().as_secs_f64())
    })
    .await?
}
