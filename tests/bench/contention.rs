//! P3: many clients on one key, and the others' speed while one key is held.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use harness::postgres::connect;
use uuid::Uuid;

use crate::Effort;
use crate::load::{self, Connection};
use crate::machine::Usage;
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

const CONNECTIONS: usize = 64;
/// How long all clients share one key.
const SHARED_FOR: Duration = Duration::from_millis(20);
/// Clients that keep asking for a held key, and how long each waits after an answer.
const INSISTENT: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);

pub async fn run(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    one_key_for_all(rig, effort, report).await?;
    one_key_held(rig, effort, report).await
}

async fn one_key_for_all(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let product = rig.product("bench-hot-key", &[]).await?;
    let usage = Usage::now()?;
    let shared = Arc::new(Mutex::new((Instant::now(), Uuid::new_v4())));
    let keys = move || {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.0.elapsed() > SHARED_FOR {
            *shared = (Instant::now(), Uuid::new_v4());
        }
        shared.1
    };
    let outcome = load::charges(product.addr, CONNECTIONS, effort.round, keys).await?;
    outcome.only(&[201, 409])?;
    usage.tell(report, "one key for all")?;
    let client = connect(&product.database_url.parse()?).await?;
    let sql = "SELECT count(*), count(DISTINCT idempotency_key) FROM charges";
    let row = client.query_one(sql, &[]).await?;
    let (charges, keys): (i64, i64) = (row.get(0), row.get(1));
    ensure!(charges == keys, "{charges} charges for {keys} keys");
    report.figure("p3", "one key for 64 clients", "/s", Series::of([outcome.per_second]));
    report.figure("p3", "one key for 64 clients, p99", "ms", Series::of([outcome.p99_ms()]));
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let refused = outcome.statuses.get(&409).copied().unwrap_or_default() as f64
        / outcome.statuses.values().sum::<u64>() as f64;
    report.figure("p3", "answers that are 409", "of 1", Series::of([refused]));
    Ok(())
}

async fn one_key_held(rig: &mut Rig, effort: Effort, report: &mut Report) -> Result<()> {
    let product = rig.product("bench-held-key", &[]).await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 1..=effort.rounds {
        let free = load::charges(product.addr, CONNECTIONS, effort.round, Uuid::new_v4).await?;
        free.only(&[201])?;
        let held = held(&product.database_url, product.addr, effort).await?;
        report.say(&format!(
            "     p3 round {round} of {}: others alone {:.0}/s, beside a held key {:.0}/s",
            effort.rounds, free.per_second, held.per_second
        ));
        alone.push(free.per_second);
        beside.push(held.per_second);
    }
    let ratio = Series::of(beside.iter().zip(&alone).map(|(beside, alone)| beside / alone));
    report.against("p3", "others beside a held key ÷ others alone", "×", ratio, Bar::AtLeast(0.9));
    Ok(())
}

/// The load, while a transaction that knows nothing of our locks holds a key that others insist on.
async fn held(database_url: &str, addr: SocketAddr, effort: Effort) -> Result<load::Outcome> {
    let key = Uuid::new_v4();
    let holder = connect(&database_url.parse()?).await?;
    holder.batch_execute("BEGIN").await?;
    let take = "INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, fingerprint_version, state, charge_id)
         VALUES ('default', 'POST /charges', $1, sha256(''), 1, 'in_progress', gen_random_uuid())";
    holder.execute(take, &[&key]).await?;
    let over = Arc::new(AtomicBool::new(false));
    let insistent: Vec<_> =
        (0..INSISTENT).map(|_| tokio::spawn(insist(addr, key, Arc::clone(&over)))).collect();
    let outcome = load::charges(addr, CONNECTIONS, effort.round, Uuid::new_v4).await?;
    outcome.only(&[201])?;
    over.store(true, Ordering::Relaxed);
    holder.batch_execute("ROLLBACK").await?;
    for client in insistent {
        client.await??;
    }
    Ok(outcome)
}

async fn insist(addr: SocketAddr, key: Uuid, over: Arc<AtomicBool>) -> Result<()> {
    let mut connection = Connection::open(addr).await?;
    while !over.load(Ordering::Relaxed) {
        let status = connection.charge(key).await?;
        ensure!([201, 409, 503].contains(&status), "a held key was answered {status}");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
