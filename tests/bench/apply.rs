//! P13: how fast the consumer applies what is in its topic, beside one transaction an event and beside
//! reading alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually_true;
use harness::service::Service;
use harness::topic::Topic;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::Effort;
use crate::backlog::Backlog;
use crate::drain::drain;
use crate::machine::{Usage, peak_memory};
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

const PARTITIONS: i32 = 3;
/// A new group has its partitions long before.
const FIRST_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// Looking costs the consumer a little, too.
const LOOK: Duration = Duration::from_millis(100);

/// Charges of one tenant on one day, so that every transaction adds to the same total.
const FILL: &str = "INSERT INTO outbox (aggregate_id, aggregate_version, event_type, payload)
    SELECT id::text, 1, 'ChargeCreated', convert_to(format(
        '{\"chargeId\":\"%s\",\"tenantId\":\"default\",\"amountCents\":4900,\"currency\":\"BRL\",'
        '\"status\":\"succeeded\",\"createdAt\":\"2026-11-30T21:00:00.123456Z\"}', id), 'UTF8')
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $1::bigint)) AS charge";

#[derive(Clone, Copy)]
enum Arm {
    /// Most events in one transaction; as it comes when it is not said.
    Apply(Option<&'static str>),
    Read,
}

const ARMS: [(&str, Arm); 3] = [
    ("one transaction an event (consumer.batch = 1)", Arm::Apply(Some("1"))),
    ("the consumer as it comes", Arm::Apply(None)),
    ("reading alone", Arm::Read),
];

pub async fn run(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let database = Backlog::open(rig.database().await?).await?;
    let topic = rig.topic(PARTITIONS).await?;
    report.say(&format!("     p13 publishing {} events first", effort.backlog));
    database.client.execute(FILL, &[&effort.backlog]).await.context("filling the outbox")?;
    drain(rig.relay("bench-relay-p13", &database.url, &topic).await?, effort.backlog).await?;

    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut memory = Vec::new();
    for round in 1..=effort.rounds {
        for (number, ((name, arm), rates)) in ARMS.iter().zip(&mut rates).enumerate() {
            database.client.batch_execute("TRUNCATE inbox, receipts, daily_totals").await?;
            database.client.batch_execute("CHECKPOINT").await?;
            let usage = Usage::now()?;
            let rate = match arm {
                Arm::Apply(batch) => {
                    let group = format!("bench-{round}-{number}");
                    let consumer = rig.consumer(&group, &database.url, &topic, *batch).await?;
                    let peak = apply(consumer, effort).await?;
                    if batch.is_none() {
                        memory.push(peak);
                    }
                    applied_a_second(&database).await?
                }
                Arm::Read => read(topic.clone(), effort.backlog).await?,
            };
            let rounds = effort.rounds;
            report.say(&format!("     p13 round {round} of {rounds}: {name} {rate:.0} events/s"));
            usage.tell(report, name)?;
            rates.push(rate);
        }
    }
    topic.delete().await?;
    tell(&rates, memory, report);
    Ok(())
}

fn tell(rates: &[Vec<f64>; 3], memory: Vec<f64>, report: &mut Report) {
    for ((name, _), rates) in ARMS.iter().zip(rates) {
        report.figure("p13", *name, "events/s", Series::of(rates.iter().copied()));
    }
    let [each, product, read] = rates;
    let ratio = |a: &[f64], b: &[f64]| Series::of(a.iter().zip(b).map(|(a, b)| a / b));
    let bar = Bar::AtLeast(8.0);
    report.against("p13", "as it comes ÷ one transaction an event", "×", ratio(product, each), bar);
    report.figure("p13", "as it comes ÷ reading alone", "×", ratio(product, read));
    let memory = Series::of(memory);
    report.against("p13", "memory of the consumer at this load", "MB", memory, Bar::AtMost(30.0));
}

/// From the first event on for a round, or until all are applied; the consumer's peak memory, in MB.
async fn apply(mut consumer: Service, effort: Effort) -> Result<f64> {
    let processed =
        async || consumer.metric("inbox_events_total", &[("outcome", "processed")]).await;
    let started = async || Ok(processed().await? > 0.0);
    eventually_true(FIRST_WITHIN, "the consumer has begun", started).await?;
    let start = Instant::now();
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    while start.elapsed() < effort.round && processed().await? < effort.backlog as f64 {
        tokio::time::sleep(LOOK).await;
    }
    let memory = peak_memory(consumer.pid().context("the consumer has ended")?)?;
    let status = consumer.stop(STOP_WITHIN).await?;
    ensure!(status.success(), "the consumer ended with {status}");
    Ok(memory)
}

/// From the first row of the inbox to the last: without the start of the process.
async fn applied_a_second(database: &Backlog) -> Result<f64> {
    let sql =
        "SELECT (count(*) / extract(epoch FROM max(processed_at) - min(processed_at)))::float8,
                      (SELECT count(*) FROM receipts) = count(*) FROM inbox";
    let row = database.client.query_one(sql, &[]).await?;
    ensure!(row.get::<_, bool>(1), "an event has no receipt");
    Ok(row.get(0))
}

/// All of the topic, and nothing done with it; records a second, with the time to connect.
async fn read(topic: Topic, records: i64) -> Result<f64> {
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &topic.brokers)
            .set("group.id", "bench")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut all = TopicPartitionList::new();
        for partition in 0..topic.partitions {
            all.add_partition_offset(&topic.name, partition, Offset::Beginning)?;
        }
        consumer.assign(&all)?;
        let (mut count, start) = (0, Instant::now());
        while count < records {
            let Some(message) = consumer.poll(FIRST_WITHIN) else { break };
            message?;
            count += 1;
        }
        ensure!(count == records, "{count} of {records} records are in the topic");
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        Ok(records as f64 / start.elapsed().as_secs_f64())
    })
    .await?
}
