//! A statement and the name of what it does, for errors and logs.

/// SQL text that is prepared once a connection.
#[derive(Debug)]
pub struct Statement {
    /// What the statement does, as the error message says it: "read the outbox".
    pub operation: &'static str,
    pub sql: &'static str,
}

impl Statement {
    pub const fn new(operation: &'static str, sql: &'static str) -> Self {
        Self { operation, sql }
    }
}
