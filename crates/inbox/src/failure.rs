//! What the failure of a transaction says about its events. This decides whether a partition waits
//! or an event is given up, so what is unclear counts as an outage: it waits, and nothing is lost.

use std::error::Error;

use crate::handler::HandlerError;

#[derive(Debug)]
pub enum Failure {
    /// Nothing is wrong with the events. They wait, however long.
    Outage(String),
    /// The handler is sure that the event can never be applied.
    Refused(String),
    /// The event may be the cause. It gets a few attempts.
    Suspect(String),
}

impl Failure {
    pub fn into_outage(self) -> Self {
        match self {
            Self::Outage(reason) | Self::Refused(reason) | Self::Suspect(reason) => {
                Self::Outage(reason)
            }
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        // 22 data exception, 23 integrity constraint, P0 raised by a function of the schema: what
        // a row can cause. A missing table or grant (42) is a deployment gone wrong, and would make
        // dead letters of all events there are.
        let by_row = error.sqlstate().is_some_and(|state| {
            ["22", "23", "P0"].iter().any(|class| state.code().starts_with(class))
        });
        match error {
            _ if by_row => Self::Suspect(chain(&error)),
            // The handler went on after a statement had failed, or could not read what it found.
            store::Error::Poisoned | store::Error::Unreadable { .. } => {
                Self::Suspect(chain(&error))
            }
            store::Error::NoConnection { .. }
            | store::Error::Statement { .. }
            // Applied or not, the inbox will tell.
            | store::Error::CommitUnknown(_) => Self::Outage(error.to_string()),
        }
    }
}

impl From<HandlerError> for Failure {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Transient(_) => Self::Outage(chain(&error)),
            HandlerError::Permanent(_) => Self::Refused(chain(&error)),
            HandlerError::Store(error) => error.into(),
        }
    }
}

/// The error with all its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
