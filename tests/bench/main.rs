//! `bench`: measures what the documents claim, beside what it is compared with, in one run.
//!
//! Arms take turns within each round, so that a machine that drifts drifts for all of them. A round
//! in which others used much of the processor is said to be so. Nothing here is a test: figures
//! depend on the machine, so bars are ratios wherever they can be.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; this is a client that makes up keys"
)]

mod apply;
mod arm;
mod arrivals;
mod backlog;
mod claim;
mod contention;
mod create;
mod drain;
mod footprint;
mod growth;
mod load;
mod machine;
mod path;
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
    /// Which: p1 (create), p1b (one connection), p2 (replay), p3 (contention), p4 (drain), p5 (commit
    /// to consumer), p6 (published rows), p7 (a held snapshot), p10 (footprint), p12 (Kafka away),
    /// p13 (the consumer); all when none is named
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

const BENCHES: [&str; 11] = ["p1", "p1b", "p2", "p3", "p4", "p5", "p6", "p7", "p10", "p12", "p13"];
/// Those that need Kafka.
const WITH_KAFKA: [&str; 6] = ["p4", "p5", "p6", "p7", "p12", "p13"];

/// How often, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub round: Duration,
    /// Rows of a drain, and events of a topic.
    pub backlog: i64,
    /// Published rows beside which a drain is measured.
    pub published: [i64; 3],
    /// A steady load, and the time that Kafka is away.
    pub steady: Duration,
    pub outage: Duration,
}

impl Effort {
    const QUICK: Self = Self {
        rounds: 3,
        round: Duration::from_secs(3),
        backlog: 200_000,
        published: [0, 200_000, 1_000_000],
        steady: Duration::from_secs(8),
        outage: Duration::from_secs(10),
    };
    const FULL: Self = Self {
        rounds: 5,
        round: Duration::from_secs(10),
        backlog: 1_000_000,
        published: [0, 1_000_000, 10_000_000],
        steady: Duration::from_secs(60),
        outage: Duration::from_secs(60),
    };
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
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let mut report = Report::new(arguments.json);
    let mut rig = Rig::start(&report, WITH_KAFKA.into_iter().any(chosen)).await?;
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
    if chosen("p4") {
        drain::run(&mut rig, effort, &mut report).await?;
    }
    if chosen("p5") {
        path::latency(&mut rig, effort, &mut report).await?;
    }
    if chosen("p6") {
        growth::published_rows(&mut rig, effort, &mut report).await?;
    }
    if chosen("p7") {
        growth::held_snapshot(&mut rig, effort, &mut report).await?;
    }
    if chosen("p10") {
        footprint::run(&mut rig, effort, &mut report).await?;
    }
    if chosen("p12") {
        path::outage(&mut rig, effort, &mut report).await?;
    }
    if chosen("p13") {
        apply::run(&mut rig, effort, &mut report).await?;
    }
    rig.stop().await?;
    report.finish()
}
