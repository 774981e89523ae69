//! The sample effect: a receipt for each charge that succeeded, and the daily totals. The only file
//! here that knows what a charge is.

use domain::{ChargeEvent, ChargeStatus};
use inbox::{Event, Handler, HandlerError};
use jiff::tz::Offset;
use store::Transaction;
use store::receipts::{self, Receipt};
use uuid::Uuid;

/// All events of a charge; the topic may carry others.
const CHARGE_EVENTS: &str = "Charge";

#[derive(Debug, Clone, Copy)]
pub struct IssueReceipts;

impl Handler for IssueReceipts {
    async fn handle(&self, tx: &Transaction<'_>, events: &[&Event]) -> Result<(), HandlerError> {
        let mut charges = Vec::with_capacity(events.len());
        for event in events {
            if let Some(charge) = succeeded_charge(event)? {
                charges.push((event.id(), charge));
            }
        }
        let receipts: Vec<_> = charges.iter().map(|(id, charge)| receipt(*id, charge)).collect();
        if receipts.is_empty() {
            return Ok(());
        }
        receipts::insert(tx, &receipts).await?;
        receipts::add_to_daily_totals(tx, &receipts).await?;
        Ok(())
    }
}

/// `None` for an event that has no effect here.
fn succeeded_charge(event: &Event) -> Result<Option<ChargeEvent>, HandlerError> {
    if !event.envelope.event_type.starts_with(CHARGE_EVENTS) {
        return Ok(None);
    }
    let charge: ChargeEvent =
        serde_json::from_slice(event.payload()).map_err(HandlerError::permanent)?;
    Ok(match charge.status {
        ChargeStatus::Succeeded => Some(charge),
        ChargeStatus::Pending | ChargeStatus::Declined => None,
    })
}

fn receipt(event_id: Uuid, charge: &ChargeEvent) -> Receipt<'_> {
    #[expect(clippy::disallowed_methods, reason = "this is where receipts are made")]
    let id = Uuid::now_v7();
    Receipt {
        tenant: charge.tenant_id.as_str(),
        id,
        event_id,
        charge_id: charge.charge_id.0,
        amount_cents: charge.amount_cents.get(),
        currency: charge.currency.as_str(),
        day: Offset::UTC.to_datetime(charge.created_at).date(),
    }
}
