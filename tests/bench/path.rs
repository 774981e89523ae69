//! P5, P9 and P12: charges at a steady rate, and when a consumer has their events: undisturbed, when
//! a relay is killed, and when Kafka is away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually_true;
use harness::postgres::connect;
use harness::service::Service;
use harness::topic::Topic;

use crate::Effort;
use crate::arrivals::{Arrivals, Latency, now};
use crate::load::{self, Outcome};
use crate::machine::{Usage, peak_memory};
use crate::report::{Bar, Report, Series};
use crate::rig::{Arm, Rig};

/// Charges a second of the bars.
const STEADY: u32 = 1000;
/// Connections are made and code is compiled, in Kafka above all, before anything is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// A load costs the database something for a while: 3.3 % of a core right after it, 1.5 % then.
const AFTERMATH: Duration = Duration::from_secs(5);
/// Of a load, before a relay is killed in it.
const UNDISTURBED: Duration = Duration::from_secs(3);
const SHARED_WITHIN: Duration = Duration::from_secs(60);
const PARITY_WITHIN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// P5: commit to consumer, at several rates.
pub async fn latency(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    idle(rig, effort, report).await?;
    for per_second in [100, STEADY, 5000] {
        let path = Path::start(rig, &format!("p5-{per_second}"), 1).await?;
        let usage = Usage::now()?;
        let load = load::paced(path.api.addr, per_second, effort.steady).await?;
        load.only(&[201])?;
        usage.tell(report, "p5")?;
        let latency = path.end().await?;
        ensure!(latency.lost == 0, "{} events did not arrive", latency.lost);
        let (p50, p99) = (latency.quantile_ms(0.5), latency.quantile_ms(0.99));
        let name = format!("commit to consumer at {per_second}/s");
        if per_second == STEADY {
            report.against("p5", format!("{name}, p50"), "ms", Series::of([p50]), Bar::AtMost(5.0));
            report.against(
                "p5",
                format!("{name}, p99"),
                "ms",
                Series::of([p99]),
                Bar::AtMost(15.0),
            );
        } else {
            report.figure("p5", format!("{name}, p50"), "ms", Series::of([p50]));
            report.figure("p5", format!("{name}, p99"), "ms", Series::of([p99]));
        }
    }
    killed(rig, effort, report).await
}

/// What a relay costs that has nothing to do, with what it costs PostgreSQL.
async fn idle(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let path = Path::start(rig, "idle", 1).await?;
    path.parity().await?;
    tokio::time::sleep(AFTERMATH).await;
    let (before, start) = (path.used()?, Instant::now());
    tokio::time::sleep(effort.round).await;
    #[expect(clippy::cast_precision_loss, reason = "a few ticks")]
    let ticks = (path.used()? - before) as f64;
    let share = Series::of([ticks / start.elapsed().as_secs_f64()]);
    path.end().await?;
    report.against("p5", "an idle relay and its database", "% of a core", share, Bar::AtMost(2.0));
    Ok(())
}

/// One of two relays dies: its events go on when its lease has run out.
async fn killed(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let mut path = Path::start(rig, "p5-killed", 2).await?;
    path.shared().await?;
    let charges = load::paced(path.api.addr, STEADY, effort.steady.max(Duration::from_secs(10)));
    let relay = path.relays.first_mut().context("invariant: two relays")?;
    let kill = async {
        tokio::time::sleep(UNDISTURBED).await;
        relay.kill()
    };
    let (load, killed) = tokio::join!(charges, kill);
    killed?;
    load?.only(&[201])?;
    let latency = path.end().await?;
    ensure!(latency.lost == 0, "{} events did not arrive", latency.lost);
    let longest = Series::of([latency.quantile_ms(1.0) / 1000.0]);
    report.against(
        "p5",
        "a relay is killed: longest wait of an event",
        "s",
        longest,
        Bar::AtMost(6.0),
    );
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let duplicates = Series::of([latency.duplicates as f64]);
    report.figure("p5", "a relay is killed: duplicates in Kafka", "", duplicates);
    Ok(())
}

/// P12: Kafka is stopped for a while.
pub async fn outage(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let path = Path::start(rig, "p12", 1).await?;
    let usage = Usage::now()?;
    let before = load::paced(path.api.addr, STEADY, effort.steady).await?;
    let kafka = rig.servers.kafka.as_mut().context("Kafka from KAFKA_BROKERS cannot be stopped")?;
    kafka.stop().await?;
    report.say("     p12 Kafka is stopped");
    let during = load::paced(path.api.addr, STEADY, effort.outage).await?;
    before.only(&[201])?;
    during.only(&[201])?;
    let memory = peak_memory(path.relays[0].pid().context("the relay has ended")?)?;
    kafka.start_again().await?;
    let back = Instant::now();
    path.parity().await?;
    let drained = back.elapsed().as_secs_f64();
    usage.tell(report, "p12")?;
    let latency = path.end().await?;
    ensure!(latency.lost == 0, "{} events did not arrive", latency.lost);
    let p99 = |outcome: &Outcome| Series::of([outcome.p99_ms()]);
    report.figure("p12", "the API's p99 with Kafka there", "ms", p99(&before));
    report.figure("p12", "the API's p99 with Kafka away", "ms", p99(&during));
    let ratio = Series::of([during.p99_ms() / before.p99_ms()]);
    report.against("p12", "away ÷ there", "×", ratio, Bar::AtMost(1.2));
    let backlog = f64::from(STEADY) * effort.outage.as_secs_f64();
    report.figure(
        "p12",
        format!("until {backlog:.0} events are published, Kafka being back"),
        "s",
        Series::of([drained]),
    );
    report.against(
        "p12",
        "the relay's memory meanwhile",
        "MB",
        Series::of([memory]),
        Bar::AtMost(40.0),
    );
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    report.figure("p12", "duplicates in Kafka", "", Series::of([latency.duplicates as f64]));
    Ok(())
}

/// An API, relays, and a consumer that watches.
struct Path {
    warm: f64,
    api: Arm,
    relays: Vec<Service>,
    arrivals: Arrivals,
    topic: Topic,
}

impl Path {
    async fn start(rig: &mut Rig, name: &str, relays: usize) -> Result<Self> {
        let api = rig.product(&format!("bench-api-{name}"), &[]).await?;
        let topic = rig.topic(3).await?;
        let arrivals = Arrivals::watch(&topic)?;
        let mut started = Vec::new();
        for number in 0..relays {
            let name = format!("bench-relay-{name}-{number}");
            let relay = rig.relay(&name, &api.database_url, &topic).await?;
            relay.ready().await?;
            started.push(relay);
        }
        load::paced(api.addr, STEADY, WARM_UP).await?.only(&[201])?;
        Ok(Self { warm: now()?, api, relays: started, arrivals, topic })
    }

    fn used(&self) -> Result<u64> {
        let (postgres, _) = self.api.used()?;
        let relays = self.relays.iter().filter_map(Service::pid);
        relays.map(crate::machine::used).try_fold(postgres, |sum, used| Ok(sum + used?))
    }

    /// Waits until everything is published.
    async fn parity(&self) -> Result<()> {
        let client = connect(&self.api.database_url.parse()?).await?;
        let sql = "SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL)";
        let deadline = Instant::now() + PARITY_WITHIN;
        while client.query_one(sql, &[]).await?.get(0) {
            ensure!(Instant::now() < deadline, "events are pending after {PARITY_WITHIN:?}");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until every relay has buckets, and each bucket a relay.
    async fn shared(&self) -> Result<()> {
        let client = connect(&self.api.database_url.parse()?).await?;
        let sql =
            "SELECT count(DISTINCT owner) = $1 AND every(coalesce(leased_until > now(), false))
                   FROM outbox_buckets";
        let relays = i64::try_from(self.relays.len())?;
        eventually_true(SHARED_WITHIN, "the relays share the buckets", async || {
            Ok(client.query_one(sql, &[&relays]).await?.get(0))
        })
        .await
    }

    async fn end(self) -> Result<Latency> {
        self.parity().await?;
        let latency = self.arrivals.latency(&self.api.database_url, self.warm).await?;
        self.topic.delete().await?;
        Ok(latency)
    }
}
