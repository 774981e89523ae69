//! P6 and P7: does a drain keep its speed when the outbox is full of the past, and while somebody
//! holds a snapshot that keeps vacuum from what was marked?

use anyhow::Result;
use harness::postgres::connect;
use harness::topic::Topic;
use std::time::Instant;

use crate::Effort;
use crate::backlog::Backlog;
use crate::drain::drain;
use crate::machine::Usage;
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

/// A drain's length: short against what is published already.
const SLICE: i64 = 60_000;
/// A drain that is long enough for dead rows to pile up, and what is compared of it.
const LONG: i64 = 400_000;
const END: i64 = 50_000;

/// P6: a slice, beside ever more published rows.
pub async fn published_rows(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let topic = rig.topic(3).await?;
    let outbox = Backlog::open(rig.database().await?).await?;
    let mut rates = Vec::new();
    for target in effort.published {
        // The slices before are a part of the past.
        let there: i64 = outbox.client.query_one("SELECT count(*) FROM outbox", &[]).await?.get(0);
        if target > there {
            report.say(&format!("     p6 publishing {} rows first", target - there));
            outbox.add_published(target - there).await?;
        }
        let mut round_rates = Vec::new();
        for _ in 0..effort.rounds {
            let usage = Usage::now()?;
            round_rates.push(slice(rig, &outbox, &topic).await?);
            usage.tell(report, "p6")?;
        }
        let series = Series::of(round_rates.iter().copied());
        report.figure(
            "p6",
            format!("relay beside {target} published rows"),
            "rows/s",
            series.clone(),
        );
        rates.push(series.median);
        let gauges = gauges(&outbox).await?;
        let figure = format!("the gauges beside {target} published rows");
        report.against("p6", figure, "ms", gauges, Bar::AtMost(2.0));
    }
    if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
        let ratio = Series::of([last / first]);
        report.against("p6", "most published rows ÷ none", "×", ratio, Bar::AtLeast(0.85));
    }
    Ok(())
}

async fn slice(rig: &Rig, outbox: &Backlog, topic: &Topic) -> Result<f64> {
    outbox.add(SLICE).await?;
    // The rate is that of the marks of the last hour: those of the slice before are made older.
    let relay = rig.relay("bench-relay", &outbox.url, topic).await?;
    drain(relay, SLICE).await?;
    let rate = outbox.rate().await?;
    let sql = "UPDATE outbox SET published_at = published_at - interval '1 day' WHERE published_at > now() - interval '1 hour'";
    outbox.client.execute(sql, &[]).await?;
    Ok(rate)
}

/// What a relay measures for its gauges, in ms: the first pending row, and a bounded count.
async fn gauges(outbox: &Backlog) -> Result<Series> {
    outbox.add(SLICE).await?;
    let sql = "SELECT (SELECT min(created_at) FROM (
                 SELECT (SELECT created_at FROM outbox o WHERE o.bucket = b.bucket
                           AND published_at IS NULL AND parked_at IS NULL ORDER BY seq LIMIT 1)
                 FROM outbox_buckets b) AS head (created_at)),
            (SELECT count(*) FROM (SELECT FROM outbox WHERE published_at IS NULL
               AND parked_at IS NULL LIMIT 10001) AS pending)";
    let statement = outbox.client.prepare(sql).await?;
    let mut took = Vec::new();
    for _ in 0..9 {
        let asked = Instant::now();
        outbox.client.query(&statement, &[]).await?;
        took.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    let sql =
        "UPDATE outbox SET published_at = now() - interval '1 day' WHERE published_at IS NULL";
    outbox.client.execute(sql, &[]).await?;
    Ok(Series::of(took))
}

/// P7: the end of a long drain against its start, while a snapshot from before it is held.
pub async fn held_snapshot(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let topic = rig.topic(3).await?;
    let outbox = Backlog::open(rig.database().await?).await?;
    let holder = connect(&outbox.url.parse()?).await?;
    let (mut ratios, mut last_rates) = (Vec::new(), Vec::new());
    for round in 1..=effort.rounds.min(3) {
        let usage = Usage::now()?;
        outbox.fill(LONG).await?;
        holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?;
        let relay = rig.relay("bench-relay", &outbox.url, &topic).await?;
        drain(relay, LONG).await?;
        holder.batch_execute("COMMIT").await?;
        let (first, last) = outbox.first_and_last_rate(END).await?;
        report.say(&format!("     p7 round {round}: first {first:.0}, last {last:.0} rows/s"));
        usage.tell(report, "p7")?;
        ratios.push(last / first);
        last_rates.push(last);
    }
    report.figure(
        "p7",
        "the end of a drain under a held snapshot",
        "rows/s",
        Series::of(last_rates),
    );
    report.against("p7", "its end ÷ its start", "×", Series::of(ratios), Bar::AtLeast(0.8));
    Ok(())
}
