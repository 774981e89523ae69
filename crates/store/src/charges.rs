//! The charges table. Charges are written by `outbox::record_charges`, together with their events.

use domain::{AmountCents, Charge, ChargeId, ChargeStatus, Currency, Description, TenantId};
use tokio_postgres::Row;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&FIND];

const FIND: Statement = Statement::new(
    "find a charge",
    "SELECT id, amount_cents, currency, description, status, created_at
     FROM charges
     WHERE tenant_id = $1 AND id = $2",
);

/// The tenant's charge with this id.
///
/// # Errors
/// [`Error::Statement`], or [`Error::Unreadable`] for a row that a newer version wrote.
pub async fn find(
    connection: &Connection,
    tenant: &TenantId,
    id: ChargeId,
) -> Result<Option<Charge>, Error> {
    let row = connection.query_opt(&FIND, &[&tenant.as_str(), &id.0]).await?;
    row.map(|row| read(&row).ok_or(Error::Unreadable { what: "a charge" })).transpose()
}

fn read(row: &Row) -> Option<Charge> {
    let description: Option<&str> = row.get(3);
    Some(Charge {
        id: ChargeId(row.get(0)),
        amount_cents: AmountCents::new(row.get(1))?,
        currency: Currency::parse(row.get(2))?,
        description: description.map(Description::parse).transpose().ok()?,
        status: ChargeStatus::parse(row.get(4))?,
        created_at: row.get(5),
    })
}
