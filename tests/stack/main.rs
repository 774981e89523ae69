//! `stack`: the local stack from the command line. Each subcommand is a module.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; this is a client that makes up keys"
)]

mod clients;
mod demo;
mod exec;
mod signals;
mod up;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real PostgreSQL, real Apache Kafka and Oncebox's own processes, on this machine.
///
/// DATABASE_URL, KAFKA_BROKERS and KAFKA_HOME are used instead of private servers when they are set.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command with DATABASE_URL and KAFKA_BROKERS set to servers that live as long as it does.
    Exec(exec::Arguments),
    /// Charge, lose answers, kill processes, and check that every charge happened exactly once.
    Demo(demo::Arguments),
    /// Run the whole stack until Ctrl-C or SIGTERM; .stack/stack.json says where everything is.
    Up(up::Arguments),
}

#[expect(clippy::print_stderr, reason = "a command line speaks to a person")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("invariant: a runtime of two threads can be had");
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Exec(arguments) => exec::run(arguments).await,
            Command::Demo(arguments) => demo::run(arguments).await,
            Command::Up(arguments) => up::run(arguments).await,
        }
    });
    result.unwrap_or_else(|error| {
        eprintln!("stack: {error:#}");
        ExitCode::FAILURE
    })
}
