//! Events: what a change of a charge tells the rest of the world.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::charge::{Charge, ChargeId, ChargeStatus};
use crate::money::{AmountCents, Currency};
use crate::tenant::TenantId;

/// The id of an outbox row and of its event: consumers apply each id once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxId(pub Uuid);

impl fmt::Display for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The payload of every event of a charge. A consumer must accept members it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChargeEvent {
    pub charge_id: ChargeId,
    pub tenant_id: TenantId,
    pub amount_cents: AmountCents,
    pub currency: Currency,
    pub status: ChargeStatus,
    pub created_at: Timestamp,
}

impl ChargeEvent {
    /// The type of the first event of a charge.
    pub const CREATED: &'static str = "ChargeCreated";

    pub fn of(tenant: &TenantId, charge: &Charge) -> Self {
        Self {
            charge_id: charge.id,
            tenant_id: tenant.clone(),
            amount_cents: charge.amount_cents,
            currency: charge.currency,
            status: charge.status,
            created_at: charge.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_keeps_its_shape() {
        let text = concat!(
            r#"{"chargeId":"018f0000-0000-7000-8000-000000000001","tenantId":"default","#,
            r#""amountCents":4900,"currency":"BRL","status":"succeeded","#,
            r#""createdAt":"2026-11-30T21:00:00.123456Z"}"#,
        );
        let event: ChargeEvent = serde_json::from_str(text).expect("payload");
        assert_eq!(serde_json::to_string(&event).expect("payload"), text);
    }
}
