//! What can go wrong between a service and its database, classified by SQLSTATE and constraint
//! name, never by message text.

use tokio_postgres::error::SqlState;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection within the pool's deadlines, or none could be made.
    #[error("no database connection: {operation}")]
    NoConnection {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refused a statement, or the connection ended while it ran.
    #[error("could not {operation}")]
    Statement {
        operation: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
    /// COMMIT got no answer: the transaction may or may not be there. Look it up, never guess.
    #[error("the outcome of a commit is unknown")]
    CommitUnknown(#[source] tokio_postgres::Error),
    /// An earlier statement of the transaction failed and its error was swallowed.
    #[error("commit refused: an earlier statement of the transaction failed")]
    Poisoned,
    /// A stored value that this version cannot read.
    #[error("could not read {what} as it is stored")]
    Unreadable { what: &'static str },
}

impl Error {
    pub(crate) fn statement(operation: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::Statement { operation, source }
    }

    pub fn sqlstate(&self) -> Option<&SqlState> {
        match self {
            Self::Statement { source, .. } | Self::CommitUnknown(source) => source.code(),
            Self::NoConnection { .. } | Self::Poisoned | Self::Unreadable { .. } => None,
        }
    }

    /// The name of the constraint that a row broke.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Statement { source, .. } => source.as_db_error()?.constraint(),
            _ => None,
        }
    }

    /// Serialisation failure or deadlock: the whole transaction may be tried again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.sqlstate(),
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
        )
    }

    /// Somebody else held a lock for longer than `lock_timeout`.
    pub fn is_lock_timeout(&self) -> bool {
        self.sqlstate() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// A row does not keep to what its table demands.
    pub fn is_check_violation(&self) -> bool {
        self.sqlstate() == Some(&SqlState::CHECK_VIOLATION)
    }

    /// A table or column of this version is not there.
    pub fn is_schema_missing(&self) -> bool {
        matches!(self.sqlstate(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::UNDEFINED_COLUMN))
    }

    /// The database is away, starting, stopping, full or too slow: not a fault of the request.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::NoConnection { .. } | Self::CommitUnknown(_) => true,
            // Without a SQLSTATE the connection itself ended.
            Self::Statement { source, .. } => is_unavailable(source),
            Self::Poisoned | Self::Unreadable { .. } => false,
        }
    }
}

pub(crate) fn is_unavailable(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|state| {
        // 08 connection, 53 insufficient resources, 57 operator intervention (time-outs among
        // them), 58 system error, XX internal error of the server, 25 a transaction in another
        // state (25006 read-only: an old primary), 40 rollback, 55P03 lock not available, 0A000
        // a table that changed once more while its statement was prepared anew.
        ["08", "53", "57", "58", "XX", "25", "40"].contains(&&state.code()[..2])
            || [&SqlState::LOCK_NOT_AVAILABLE, &SqlState::FEATURE_NOT_SUPPORTED].contains(&state)
    })
}
