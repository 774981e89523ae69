//! `bench`: measures what the documents claim, beside what it is compared with, in one run.
//!
//! Arms take turns within each round, so that a machine that drifts drifts for all of them. A round
//! in which others used much of the processor is said to be so. Nothing here is a test: figures
//! depend on the machine, so bars are ratios wherever they can be.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; this is a client that makes up keys"
)]

mod arm;
mod contention;
mod create;
mod footprint;
mod load;
mod machine;
mod replay;
mod report;
mod rig;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::report::Report;
use crate::rig::Rig;

/// Measures Oncebox beside what it is compared with.
#[derive(Parser)]
struct Arguments {
    /// Which: p1 (create), p1b (one connection), p2 (replay), p3 (contention), p10 (footprint); all
    /// when none is named
    names: Vec<String>,
    /// Shorter and fewer rounds, for a first look
    #[arg(long)]
    quick: bool,
    /// Print the figures as JSON on standard output, and progress on standard error
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve one of the arms (started by the benchmark itself)
    #[command(hide = true)]
    Arm(arm::Arguments),
}

const BENCHES: [&str; 5] = ["p1", "p1b", "p2", "p3", "p10"];

/// How often, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub round: Duration,
}

#[expect(clippy::print_stderr, reason = "a command line speaks to a person")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Arm(arguments)) = arguments.command {
        return match arm::serve(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("arm: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("invariant: a runtime of two threads can be had");
    match runtime.block_on(run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every bar was reached.
async fn run(arguments: &Arguments) -> Result<bool> {
    if let Some(unknown) = arguments.names.iter().find(|name| !BENCHES.contains(&name.as_str())) {
        bail!("there is no {unknown}; there are {}", BENCHES.join(", "));
    }
    let chosen =
        |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let effort = if arguments.quick {
        Effort { rounds: 3, round: Duration::from_secs(3) }
    } else {
        Effort { rounds: 5, round: Duration::from_secs(10) }
    };
    let mut report = Report::new(arguments.json);
    let mut rig = Rig::start(&report).await?;
    if chosen("p1") {
        create::sixty_four_connections(&mut rig, effort, &mut report).await?;
    }
    if chosen("p1b") {
        create::one_connection(&mut rig, effort, &mut report).await?;
    }
    if chosen("p2") {
        replay::run(&mut rig, effort, &mut report).await?;
    }
    if chosen("p3") {
        contention::run(&mut rig, effort, &mut report).await?;
    }
    if chosen("p10") {
        footprint::run(&mut rig, effort, &mut report).await?;
    }
    rig.stop().await?;
    report.finish()
}
