//! The sample consumer's effect: a receipt a charge, and the daily totals.
//!
//! Nothing here asks whether an event was applied before: that is the inbox's business.

use jiff::civil::Date;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::{Error, Statement, Transaction};

pub(crate) const STATEMENTS: &[&Statement] = &[&INSERT, &ADD_TO_DAILY_TOTALS];

#[derive(Debug, Clone, Copy)]
pub struct Receipt<'a> {
    pub tenant: &'a str,
    pub id: Uuid,
    pub event_id: Uuid,
    pub charge_id: Uuid,
    pub amount_cents: i64,
    pub currency: &'a str,
    /// The UTC day that the charge counts for.
    pub day: Date,
}

const INSERT: Statement = Statement::new(
    "insert receipts",
    "INSERT INTO receipts (tenant_id, id, event_id, charge_id, amount_cents, currency)
     SELECT tenant_id, id, event_id, charge_id, amount_cents, currency
     FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::text[])
       AS receipt (tenant_id, id, event_id, charge_id, amount_cents, currency)",
);

/// # Errors
/// [`Error::Statement`].
pub async fn insert(tx: &Transaction<'_>, receipts: &[Receipt<'_>]) -> Result<(), Error> {
    let column = Columns::of(receipts);
    let params: [&(dyn ToSql + Sync); 6] = [
        &column.tenants,
        &column.ids,
        &column.events,
        &column.charges,
        &column.amounts,
        &column.currencies,
    ];
    tx.execute(&INSERT, &params).await?;
    Ok(())
}

// The sum of bigints is a numeric, which does not overflow. One row a total, and the totals in one
// order: two consumers that add to the same ones wait in line and never for each other.
const ADD_TO_DAILY_TOTALS: Statement = Statement::new(
    "add to the daily totals",
    "INSERT INTO daily_totals AS total (tenant_id, day, currency, charges, amount_cents)
     SELECT tenant_id, day, currency, count(*), sum(amount_cents)
     FROM unnest($1::text[], $2::date[], $3::text[], $4::bigint[])
       AS receipt (tenant_id, day, currency, amount_cents)
     GROUP BY tenant_id, day, currency
     ORDER BY tenant_id COLLATE \"C\", day, currency COLLATE \"C\"
     ON CONFLICT (tenant_id, day, currency) DO UPDATE
     SET charges = total.charges + excluded.charges,
         amount_cents = total.amount_cents + excluded.amount_cents",
);

/// The last statement of its transaction: every consumer waits for the one that holds a total.
///
/// # Errors
/// [`Error::Statement`].
pub async fn add_to_daily_totals(
    tx: &Transaction<'_>,
    receipts: &[Receipt<'_>],
) -> Result<(), Error> {
    let column = Columns::of(receipts);
    let params: [&(dyn ToSql + Sync); 4] =
        [&column.tenants, &column.days, &column.currencies, &column.amounts];
    tx.execute(&ADD_TO_DAILY_TOTALS, &params).await?;
    Ok(())
}

/// The receipts turned into the arrays that the statements take.
struct Columns<'a> {
    tenants: Vec<&'a str>,
    ids: Vec<Uuid>,
    events: Vec<Uuid>,
    charges: Vec<Uuid>,
    amounts: Vec<i64>,
    currencies: Vec<&'a str>,
    days: Vec<Date>,
}

impl<'a> Columns<'a> {
    fn of(receipts: &[Receipt<'a>]) -> Self {
        Self {
            tenants: receipts.iter().map(|receipt| receipt.tenant).collect(),
            ids: receipts.iter().map(|receipt| receipt.id).collect(),
            events: receipts.iter().map(|receipt| receipt.event_id).collect(),
            charges: receipts.iter().map(|receipt| receipt.charge_id).collect(),
            amounts: receipts.iter().map(|receipt| receipt.amount_cents).collect(),
            currencies: receipts.iter().map(|receipt| receipt.currency).collect(),
            days: receipts.iter().map(|receipt| receipt.day).collect(),
        }
    }
}
