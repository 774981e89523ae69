//! Why a verb could not do its work, and with which exit code the process says so.

use std::error::Error;
use std::process::ExitCode;

use store::migrate::MigrateError;

/// Codes of sysexits.h, so that a script can tell them apart.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: u8 = 70;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("no log lines could be written")]
    Logging(#[source] telemetry::logs::Error),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Kafka does not answer, or not us.
    #[error("the topic could not be read: {0}")]
    Kafka(String),
    /// Says what to do instead.
    #[error("{0}")]
    Usage(String),
    /// Nothing was changed; says what to do.
    #[error("{0}")]
    Refused(String),
}

impl Failure {
    /// The message and those of its causes, in one line.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        if let Some(next) = self.next_step() {
            text.push_str("; ");
            text.push_str(next);
        }
        text
    }

    fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::Store(store::Error::CommitUnknown(_)) => {
                Some("look at the rows, and at operator_actions, before you run it again")
            }
            Self::Store(error) if error.is_schema_missing() => {
                Some("the schema is not this version's: run `oncebox migrate`")
            }
            Self::Store(error) if error.is_unavailable() => {
                Some("see whether PostgreSQL answers at database.url, then run it again")
            }
            Self::Migrate(error) if error.is_unavailable() => {
                Some("see whether PostgreSQL answers at database.url, then run it again")
            }
            Self::Kafka(_) => Some(
                "see whether the brokers of kafka.brokers answer, and take this user (kafka.security_protocol \
                 and what goes with it), then run it again",
            ),
            _ => None,
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => USAGE,
            Self::Kafka(_) => UNAVAILABLE,
            Self::Store(error) if error.is_unavailable() => UNAVAILABLE,
            Self::Migrate(error) if error.is_unavailable() => UNAVAILABLE,
            Self::Logging(_) | Self::Migrate(_) | Self::Store(_) | Self::Refused(_) => SOFTWARE,
        })
    }
}
