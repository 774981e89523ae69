//! `oncebox`: what an operator does by hand, one verb a module.
//!
//! A verb makes an [`Answer`], and only `main` prints it. What a verb changes is written to
//! `operator_actions` in the same transaction. Nothing here serves anything or runs for long.

mod answer;
mod dead_letters;
mod failure;
mod kafka;
mod keys;
mod migrate;
mod operator;
mod outbox;
mod reconcile;
mod settings;
mod table;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Subcommand;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::settings::Settings;

const ABOUT: &str = "Migrates the database, and looks after what waits for a person";
const EXIT_CODES: &str = "Exit codes:
  0   done, or nothing wrong found
  1   looked, and the answer is no: something is wrong, missing or not there
  64  wrong arguments or settings, or a change without --yes
  69  the database or Kafka is away
  70  failed; the message says what to do

";

#[derive(Subcommand)]
enum Verb {
    /// Bring the database to this version's schema.
    Migrate(migrate::Arguments),
    /// Make, list, rotate and revoke the API keys of tenants.
    #[command(subcommand)]
    Keys(keys::Verb),
    /// See what waits to be published, and change it.
    #[command(subcommand)]
    Outbox(outbox::Verb),
    /// See what consumers could not apply, and decide about it.
    #[command(subcommand)]
    DeadLetters(dead_letters::Verb),
    /// Hold charges, events and keys against each other.
    Reconcile(reconcile::Arguments),
}

impl Verb {
    async fn run(self, settings: &Settings) -> Result<Answer, Failure> {
        match self {
            Self::Migrate(arguments) => migrate::run(settings, &arguments).await,
            Self::Keys(verb) => keys::run(settings, &verb).await,
            Self::Outbox(verb) => outbox::run(settings, &verb).await,
            Self::DeadLetters(verb) => dead_letters::run(settings, &verb).await,
            Self::Reconcile(arguments) => reconcile::run(settings, &arguments).await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let (settings, verb) =
        ::settings::Cli::<Settings>::new("oncebox", version, ABOUT).parse_verb::<Verb>(EXIT_CODES);
    let result = match telemetry::logs::init_on_stderr(&settings.log) {
        Ok(()) => verb.run(&settings).await,
        Err(error) => Err(Failure::Logging(error)),
    };
    // Whoever reads may have gone: what was done is done all the same.
    match result {
        Ok(answer) => {
            let _ = writeln!(std::io::stdout(), "{}", answer.text());
            answer.exit_code()
        }
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "oncebox: {}", failure.with_causes());
            failure.exit_code()
        }
    }
}
