//! Aggregates whose events are numbered, written by nobody in particular, to see what order they are
//! published in.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use harness::eventually::{SOON, eventually_true};
use harness::postgres::connect;
use harness::topic::Record;

pub const AGGREGATES: i32 = 40;
/// Between two versions of a load: some hundred rows a second.
const PAUSE: Duration = Duration::from_millis(50);

/// These versions of every aggregate, the aggregates mixed, each in order.
pub async fn write(url: &str, from: i32, to: i32) -> Result<()> {
    let client = connect(&url.parse()?).await?;
    let sql = "INSERT INTO outbox (aggregate_id, aggregate_version, event_type, payload)
               SELECT 'aggregate-' || number, version, 'Counted', version::text::bytea
               FROM generate_series($2::int, $3::int) AS version,
                    generate_series(1, $1::int) AS number
               ORDER BY 2, number";
    client.execute(sql, &[&AGGREGATES, &from, &to]).await?;
    Ok(())
}

/// One version after the other, until it is over. Returns the last.
pub async fn write_until(url: &str, over: &AtomicBool) -> Result<i32> {
    for version in 1.. {
        write(url, version, version).await?;
        if over.load(Ordering::Relaxed) {
            return Ok(version);
        }
        tokio::time::sleep(PAUSE).await;
    }
    unreachable!("the loop ends when it is over")
}

pub async fn published(url: &str) -> Result<i64> {
    let client = connect(&url.parse()?).await?;
    let sql = "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// So many rows more are published than now.
pub async fn goes_on(url: &str, rows: i64) -> Result<()> {
    let before = published(url).await?;
    eventually_true(SOON, "publishing goes on", async || Ok(published(url).await? >= before + rows))
        .await
}

/// All up to this version.
pub async fn all_published(url: &str, last: i32) -> Result<()> {
    let total = i64::from(AGGREGATES * last);
    eventually_true(SOON, "all is published", async || Ok(published(url).await? == total)).await
}

/// Demands that a consumer sees the versions of each aggregate in their order, from 1 to the last,
/// and that no aggregate has more further copies than this.
pub fn require(records: &[Record], last: i32, copies_max: usize) -> Result<()> {
    // An aggregate is in one partition, and records come sorted by offset within it.
    let mut seen = HashSet::new();
    let mut order: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        if seen.insert(record.event_id()) {
            let version = record.header("ce_sequence").parse().unwrap_or(-1);
            order.entry(&record.key).or_default().push(version);
        } else {
            *copies.entry(&record.key).or_default() += 1;
        }
    }
    ensure!(order.len() == usize::try_from(AGGREGATES)?, "{} aggregates", order.len());
    for (aggregate, versions) in order {
        ensure!(versions.iter().copied().eq(1..=last), "1 to {last} of {aggregate}: {versions:?}");
    }
    copies.retain(|_, count| *count > copies_max);
    ensure!(copies.is_empty(), "more than {copies_max} copies of an aggregate: {copies:?}");
    Ok(())
}
