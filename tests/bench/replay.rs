//! P2: keys that are completed already.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use harness::postgres::{self, connect};
use tokio::process::Command;
use uuid::Uuid;

use crate::Effort;
use crate::load::{self, Connection};
use crate::machine::Usage;
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

const KEYS: u64 = 1000;
/// What pgbench may use; the product has one connection for this.
const PGBENCH_CLIENTS: &str = "32";

fn key(number: u64) -> Uuid {
    Uuid::from_u64_pair(0x4000, 0x8000_0000_0000_0000 | number)
}

pub async fn run(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let product = rig.product("bench-replay", &[]).await?;
    let mut connection = Connection::open(product.addr).await?;
    for number in 0..KEYS {
        ensure!(connection.charge(key(number)).await? == 201, "a key could not be stored");
    }
    let client = connect(&product.database_url.parse()?).await?;
    client.batch_execute("VACUUM ANALYZE").await?;

    let (mut replays, mut selects, mut wal) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.rounds {
        product.checkpoint().await?;
        let usage = Usage::now()?;
        let before = wal_position(&client).await?;
        let next = Arc::new(AtomicU64::new(0));
        let keys = move || key(next.fetch_add(1, Ordering::Relaxed) % KEYS);
        let outcome = load::charges(product.addr, 64, effort.round, keys).await?;
        outcome.only(&[201])?;
        let written = wal_position(&client).await? - before;
        #[expect(clippy::cast_precision_loss, reason = "both are far below 2^52")]
        wal.push(written as f64 / (outcome.per_second * effort.round.as_secs_f64()));
        usage.tell(report, "replay")?;
        let rate = pgbench(&product.database_url, effort).await?;
        report.say(&format!(
            "     p2 round {round} of {}: replay {:.0}/s, pgbench {rate:.0}/s",
            effort.rounds, outcome.per_second
        ));
        replays.push(outcome);
        selects.push(rate);
    }
    report.figure("p2", "replay", "/s", Series::of(replays.iter().map(|o| o.per_second)));
    report.figure("p2", "replay, p99", "ms", Series::of(replays.iter().map(load::Outcome::p99_ms)));
    report.figure("p2", "pgbench, select by key", "/s", Series::of(selects.iter().copied()));
    let ratio =
        Series::of(replays.iter().zip(&selects).map(|(replay, rate)| replay.per_second / rate));
    report.against("p2", "replay ÷ pgbench", "×", ratio, Bar::AtLeast(0.6));
    // The server itself writes a few records a minute, whatever it is asked.
    report.against("p2", "WAL a replay", "bytes", Series::of(wal), Bar::AtMost(0.5));
    let charges = client.query_one("SELECT count(*) FROM charges", &[]).await?.get::<_, i64>(0);
    ensure!(charges == KEYS.cast_signed(), "replays made charges: {charges}");
    Ok(())
}

async fn wal_position(client: &tokio_postgres::Client) -> Result<i64> {
    let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Reads one answer by its key as fast as PostgreSQL can.
async fn pgbench(database_url: &str, effort: Effort) -> Result<f64> {
    let script = std::env::temp_dir().join(format!("oncebox-replay-{}.sql", std::process::id()));
    std::fs::write(
        &script,
        "\\set n random(0, 999)\n\
         SELECT fingerprint, response_status, response_body FROM idempotency_keys \
         WHERE tenant_id = 'default' AND endpoint = 'POST /charges' \
           AND key = ('00000000-0000-4000-8000-' || lpad(to_hex(:n::int), 12, '0'))::uuid;\n",
    )?;
    let seconds = effort.round.as_secs().to_string();
    let pgbench = postgres::find_binaries()?.join("pgbench");
    let output = Command::new(pgbench)
        .args(["-n", "-M", "prepared", "-c", PGBENCH_CLIENTS, "-j", "1", "-T", &seconds, "-f"])
        .arg(&script)
        .arg(database_url)
        .stdin(Stdio::null())
        .output()
        .await
        .context("running pgbench")?;
    std::fs::remove_file(&script)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let tps = text
        .lines()
        .find_map(|line| line.strip_prefix("tps = "))
        .and_then(|rest| rest.split_whitespace().next().and_then(|number| number.parse().ok()));
    tps.with_context(|| format!("pgbench said: {}", String::from_utf8_lossy(&output.stderr)))
}
