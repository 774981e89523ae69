//! The charges table. Charges are written by `outbox::record_charges`, together with their events.

use domain::{
    AmountCents, Charge, ChargeId, ChargeStatus, Currency, Description, Endpoint, IdempotencyKey,
    TenantId,
};
use tokio_postgres::Row;

use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[&FIND, &FIND_BY_KEY, &LIST];

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

// A join could be planned as a scan of all charges of the tenant.
const FIND_BY_KEY: Statement = Statement::new(
    "find the charge of a key",
    "SELECT id, amount_cents, currency, description, status, created_at
     FROM charges
     WHERE tenant_id = $1
       AND id = (SELECT charge_id FROM idempotency_keys
                 WHERE tenant_id = $1 AND endpoint = $2 AND key = $3)",
);

/// The charge that the tenant's key stands for, or stood for when it has expired and is still there.
/// No index leads from a key that is gone to its charge: it would cost every charge an insertion at
/// a random place.
///
/// # Errors
/// As [`find`].
pub async fn find_by_key(
    connection: &Connection,
    tenant: &TenantId,
    key: IdempotencyKey,
) -> Result<Option<Charge>, Error> {
    let endpoint = Endpoint::CreateCharge.as_str();
    let row =
        connection.query_opt(&FIND_BY_KEY, &[&tenant.as_str(), &endpoint, &key.uuid()]).await?;
    row.map(|row| read(&row).ok_or(Error::Unreadable { what: "a charge" })).transpose()
}

// Ids are UUIDv7, so the primary key read backwards is newest first.
const LIST: Statement = Statement::new(
    "list charges",
    "SELECT id, amount_cents, currency, description, status, created_at
     FROM charges
     WHERE tenant_id = $1 AND id < $2
     ORDER BY id DESC
     LIMIT $3",
);

/// At most `max` charges of the tenant, the newest first, from below `before` on.
///
/// # Errors
/// As [`find`].
pub async fn list(
    connection: &Connection,
    tenant: &TenantId,
    before: ChargeId,
    max: u16,
) -> Result<Vec<Charge>, Error> {
    let rows = connection.query(&LIST, &[&tenant.as_str(), &before.0, &i64::from(max)]).await?;
    rows.iter().map(|row| read(row).ok_or(Error::Unreadable { what: "a charge" })).collect()
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
