//! `oncebox`: what an operator does by hand, one verb a module.
//!
//! A verb makes an [`Answer`], and only `main` prints it. What a verb changes is written to
//! `operator_actions` in the same transaction. Nothing here serves anything or runs for long.

mod answer;
mod failure;
mod migrate;
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
  69  the database is away
  70  failed; the message says what to do

";

#[derive(Subcommand)]
enum Verb {
    /// Bring the database to this version's schema.
    Migrate(migrate::Arguments),
}

impl Verb {
    async fn run(self, settings: &Settings) -> Result<Answer, Failure> {
        match self {
            Self::Migrate(arguments) => migrate::run(settings, &arguments).await,
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
