//! `stack up`: the stack without load, for a person or for somebody else's test suite.
//!
//! `.stack/stack.json` says where everything is as long as everything is there.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use harness::checkout;
use harness::stack::Shape;
use serde_json::{Value, json};

use crate::signals::Signals;
use crate::whole::{Data, Whole};

/// How soon the end of a process is told.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct Arguments {
    /// API processes
    #[arg(long, default_value_t = 2)]
    apis: usize,
    /// Relay processes
    #[arg(long, default_value_t = 2)]
    relays: usize,
    /// Consumer processes
    #[arg(long, default_value_t = 2)]
    consumers: usize,
    /// Kafka nodes; three replicate everything
    #[arg(long, default_value_t = 1)]
    brokers: usize,
}

#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let place = Place::take(&checkout::root()?)?;
    let Arguments { apis, relays, consumers, brokers } = arguments;
    println!("Starting PostgreSQL, Apache Kafka and the processes of Oncebox …");
    let mut whole = tokio::select! {
        whole = Whole::start(Shape { apis, relays, consumers }, brokers, &place.logs, Data::Shared) => whole?,
        signal = signals.next() => bail!("{signal} while the stack was starting"),
    };
    place.publish(&describe(&whole, &place.logs))?;
    print_summary(&whole, &place);

    loop {
        tokio::select! {
            _ = signals.next() => break,
            () = tokio::time::sleep(LOOK) => {
                for line in whole.newly_ended() {
                    println!("{line}");
                }
            }
        }
    }
    println!("Stopping …");
    place.withdraw()?;
    whole.stop().await?;
    Ok(ExitCode::SUCCESS)
}

/// The `.stack` directory of a checkout, ours as long as this lives.
struct Place {
    json: PathBuf,
    logs: PathBuf,
    _lock: File,
}

impl Place {
    fn take(root: &Path) -> Result<Self> {
        let dir = root.join(".stack");
        fs::create_dir_all(&dir)?;
        let path = dir.join("lock");
        let mut lock = File::options().create(true).truncate(false).write(true).open(&path)?;
        // The kernel unlocks it however the other one ended: a dead stack is in nobody's way.
        if lock.try_lock().is_err() {
            let pid = fs::read_to_string(&path).unwrap_or_default();
            let json = dir.join("stack.json");
            bail!(
                "a stack is already running in this checkout, as process {}: use it ({}), or end it \
                 with `kill {}`",
                pid.trim(),
                json.display(),
                pid.trim(),
            );
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        let place = Self { json: dir.join("stack.json"), logs: dir.join("logs"), _lock: lock };
        place.withdraw()?;
        if place.logs.exists() {
            fs::remove_dir_all(&place.logs).context("removing the logs of the last stack")?;
        }
        Ok(place)
    }

    /// Complete or absent, never half of it.
    fn publish(&self, value: &Value) -> Result<()> {
        let fresh = self.json.with_extension("json.new");
        fs::write(&fresh, format!("{value:#}\n"))?;
        fs::rename(&fresh, &self.json).context("writing stack.json")
    }

    fn withdraw(&self) -> Result<()> {
        if self.json.exists() {
            fs::remove_file(&self.json).context("removing stack.json")?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _a_stale_file_is_replaced_later = self.withdraw();
    }
}

fn describe(whole: &Whole, logs: &Path) -> Value {
    let mut processes = Vec::new();
    let postgres = whole.servers.postgres.as_ref().and_then(|server| server.pid());
    processes.extend(postgres.map(|pid| json!({"role": "postgres", "pid": pid})));
    for pid in whole.servers.kafka.iter().flat_map(|kafka| kafka.pids()) {
        processes.push(json!({"role": "kafka", "pid": pid}));
    }
    for service in whole.stack.services() {
        let mut entry = json!({
            "role": service.role.as_str(),
            "name": service.name(),
            "pid": service.pid(),
            "admin_url": service.admin_url(),
            "command": service.argv(),
            "env": service.env(),
        });
        if let Some(url) = service.url() {
            entry["url"] = url.into();
        }
        processes.push(entry);
    }
    json!({
        "pid": std::process::id(),
        "database_url": whole.database_url(),
        "kafka_brokers": whole.servers.kafka_brokers,
        "topic": whole.topic.name,
        "logs": logs,
        "processes": processes,
    })
}

#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
fn print_summary(whole: &Whole, place: &Place) {
    println!();
    for line in &whole.servers.chosen {
        println!("{line}");
    }
    println!("database_url     {}", whole.database_url());
    println!("topic            {}, {} partitions", whole.topic.name, whole.topic.partitions);
    for service in whole.stack.services() {
        let pid = service.pid().unwrap_or_default();
        let url = service.url().unwrap_or_default();
        println!("{:<18} pid {pid:<8} {url:<24} admin {}", service.name(), service.admin_url());
    }
    println!("logs             {}", place.logs.display());
    println!("all of this      {}", place.json.display());
    println!("\nReady. Ctrl-C stops everything.");
}
