//! `stack exec`: servers around one command.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use harness::checkout;
use harness::process::{Output, POLL, Process, Spec, Watchdog};
use harness::servers::{Given, Servers};
use nix::sys::signal::Signal;

use crate::signals::Signals;

/// What the command may take to end after a signal that we passed on.
const GRACE: Duration = Duration::from_secs(15);

#[derive(Args)]
pub struct Arguments {
    /// PostgreSQL alone
    #[arg(long)]
    no_kafka: bool,
    /// Kafka nodes
    #[arg(long, default_value_t = 1, conflicts_with = "no_kafka")]
    brokers: usize,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[expect(clippy::print_stderr, reason = "standard output belongs to the command")]
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let logs = checkout::root()?.join(".stack/exec").join(std::process::id().to_string());
    let brokers = (!arguments.no_kafka).then_some(arguments.brokers);
    let servers = tokio::select! {
        servers = Servers::start(Given::from_environment(), brokers, &logs) => servers?,
        signal = signals.next() => bail!("{signal} while the servers were starting"),
    };
    for line in &servers.chosen {
        eprintln!("stack: {line}");
    }

    let mut environment =
        BTreeMap::from([("DATABASE_URL".to_owned(), servers.database_url.clone())]);
    environment.extend(servers.kafka_brokers.clone().map(|b| ("KAFKA_BROKERS".to_owned(), b)));
    let spec = Spec {
        name: arguments.command[0].clone(),
        argv: arguments.command,
        env: environment,
        output: Output::Inherit,
        user: None,
        stop_signal: Signal::SIGTERM,
    };
    let status = attend(Process::spawn(&spec)?, &mut signals).await?;

    if status.success() {
        servers.stop().await?;
        // Nobody will read them; those of a failure stay.
        std::fs::remove_dir_all(&logs)?;
    } else {
        eprintln!("stack: the command ended with {status}; logs are in {}", logs.display());
        if let Some((dir, command)) = servers.stop_and_keep().await? {
            eprintln!("stack: {} is kept until the next run: {command}", dir.display());
        }
    }
    Ok(exit_code(status))
}

/// Waits for the command; a signal to us is a signal to all of its group.
async fn attend(mut process: Process, signals: &mut Signals) -> Result<ExitStatus> {
    let _watchdog = Watchdog::over(&process)?;
    loop {
        tokio::select! {
            signal = signals.next() => {
                process.signal_group(signal)?;
                return match process.wait(GRACE).await {
                    Some(status) => Ok(status),
                    None => process.kill(),
                };
            }
            () = tokio::time::sleep(POLL) => {
                if let Some(status) = process.exited() {
                    return Ok(status);
                }
            }
        }
    }
}

/// The command's own code; 128 + the signal's number for one that died of it, as shells say it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
