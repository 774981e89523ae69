//! P10: how soon a new process answers, and what it needs when it has nothing to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::process::{Process, Spec};
use harness::{checkout, ports};
use uuid::Uuid;

use crate::Effort;
use crate::load::Connection;
use crate::machine::peak_memory;
use crate::report::{Bar, Report, Series};
use crate::rig::Rig;

const STARTS: usize = 9;
const GIVEN_UP: Duration = Duration::from_secs(10);

pub async fn run(rig: &mut Rig, _effort: Effort, report: &mut Report) -> Result<()> {
    let product = rig.product("bench-footprint", &[]).await?;
    let binary = checkout::binary("charge-api")?.to_string_lossy().into_owned();
    let (mut starts, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let [http, admin] = ports::free()?;
        let log = checkout::root()?.join(".stack/bench/start.log");
        let mut spec = Spec::server("start", vec![binary.clone()], log);
        spec.env = [
            ("DATABASE_URL", product.database_url.clone()),
            ("ONCEBOX_AUTH", "disabled".into()),
            ("ONCEBOX_HTTP_LISTEN", format!("127.0.0.1:{http}")),
            ("ONCEBOX_ADMIN_LISTEN", format!("127.0.0.1:{admin}")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let start = Instant::now();
        let mut process = Process::spawn(&spec)?;
        first_charge(([127, 0, 0, 1], http).into(), start).await?;
        starts.push(start.elapsed().as_secs_f64() * 1000.0);
        memory.push(peak_memory(process.pid())?);
        process.stop(GIVEN_UP).await.context("ending a charge-api")?;
    }
    report.against("p10", "first 201 after exec", "ms", Series::of(starts), Bar::AtMost(50.0));
    report.figure("p10", "memory after one charge", "MB", Series::of(memory));
    Ok(())
}

async fn first_charge(addr: std::net::SocketAddr, start: Instant) -> Result<()> {
    while start.elapsed() < GIVEN_UP {
        if let Ok(mut connection) = Connection::open(addr).await
            && connection.charge(Uuid::new_v4()).await? == 201
        {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    bail!("no charge within {GIVEN_UP:?}")
}
