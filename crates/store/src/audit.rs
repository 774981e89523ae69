//! The operator_actions table: who changed what by hand, written with the change.

use serde_json::Value;
use uuid::Uuid;

use crate::{Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&RECORD];

/// What an operator does.
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    pub operator: &'a str,
    /// The verb: "outbox replay".
    pub action: &'a str,
    pub arguments: &'a Value,
}

const RECORD: Statement = Statement::new(
    "record an operator's action",
    "INSERT INTO operator_actions (id, operator, action, arguments, rows_changed)
     VALUES ($1, $2, $3, $4, $5)",
);

/// # Errors
/// [`Error::Statement`].
pub async fn record(
    tx: &Transaction<'_>,
    id: Uuid,
    action: Action<'_>,
    rows: u64,
) -> Result<(), Error> {
    let rows = i64::try_from(rows).unwrap_or(i64::MAX);
    tx.execute(&RECORD, &[&id, &action.operator, &action.action, &action.arguments, &rows]).await?;
    Ok(())
}
