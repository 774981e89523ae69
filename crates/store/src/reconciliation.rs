//! Reconciliation: what the one statement that writes a charge promises, checked from the outside.
//! Every charge has its event, every charge event and every key has its charge. It only reads, page
//! by page, and never in the way of a request.
//!
//! No snapshot is held over pages, which a long scan would make everybody's vacuum wait for. Instead
//! what was committed together is read in an order that cannot mislead: the thing first, then what
//! must be there with it.

use std::collections::HashSet;

use domain::ChargeEvent;
use jiff::Timestamp;
use uuid::Uuid;

use crate::outbox::retention::{self, CLOCKS_APART};
use crate::{Connection, Error, Statement};

pub(crate) const STATEMENTS: &[&Statement] = &[
    &NEXT_CHARGE_TENANT,
    &NEXT_OUTBOX_TENANT,
    &CHARGES,
    &EVENTS,
    &DISCARDED,
    &MISSING,
    &KEYS,
    &NOW,
];

/// Rows of one statement: a few milliseconds.
const PAGE_ROWS: i64 = 5_000;
/// A charge's id and its event's are minted one after the other, so the event is looked for around
/// the charge's time first, and in all of the outbox only when it is not there.
const NEAR_MILLIS: u64 = 100;
/// Mismatches that are named; beyond that only their number matters.
pub const NAMED_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    ChargeWithoutEvent,
    EventWithoutCharge,
    KeyWithoutCharge,
}

impl Kind {
    pub const ALL: [Self; 3] =
        [Self::ChargeWithoutEvent, Self::EventWithoutCharge, Self::KeyWithoutCharge];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::ChargeWithoutEvent => "charge_without_event",
            Self::EventWithoutCharge => "event_without_charge",
            Self::KeyWithoutCharge => "key_without_charge",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    pub kind: Kind,
    pub tenant_id: String,
    /// Of the charge, the event or, for a key, of the charge that it names.
    pub id: Uuid,
}

#[derive(Debug, Clone, Default)]
pub struct Report {
    pub charges: u64,
    pub events: u64,
    pub keys: u64,
    /// Charges from before may have lost their events to retention, and were left out.
    pub events_kept_since: Option<Timestamp>,
    /// The first [`NAMED_MAX`].
    pub named: Vec<Mismatch>,
    counts: [u64; Kind::ALL.len()],
}

impl Report {
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    pub fn is_clean(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    fn add(&mut self, kind: Kind, tenant: &str, ids: impl IntoIterator<Item = Uuid>) {
        for id in ids {
            self.counts[kind as usize] += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(Mismatch { kind, tenant_id: tenant.to_owned(), id });
            }
        }
    }
}

const NEXT_CHARGE_TENANT: Statement = Statement::new(
    "find the next tenant with charges",
    "SELECT tenant_id FROM charges WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1",
);

const NEXT_OUTBOX_TENANT: Statement = Statement::new(
    "find the next tenant with events",
    "SELECT tenant_id FROM outbox WHERE tenant_id > $1 ORDER BY tenant_id LIMIT 1",
);

const CHARGES: Statement = Statement::new(
    "read charges to reconcile",
    "SELECT id FROM charges WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3",
);

const EVENTS: Statement = Statement::new(
    "read events to reconcile",
    "SELECT id, aggregate_id, event_type = $5
     FROM outbox
     WHERE tenant_id = $1 AND id > $2 AND id < $3
     ORDER BY id
     LIMIT $4",
);

// A table that holds what an operator dropped by hand.
const DISCARDED: Statement = Statement::new(
    "read discarded events",
    "SELECT id, aggregate_id FROM outbox_discarded
     WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3",
);

/// Charges without an event, of those whose ids were minted since then, and whose events retention
/// cannot have deleted.
///
/// # Errors
/// [`Error::Statement`].
pub async fn charges(
    connection: &Connection,
    since: Option<Timestamp>,
    report: &mut Report,
) -> Result<(), Error> {
    report.events_kept_since = events_kept_since(connection).await?;
    let start = since.max(report.events_kept_since).map_or(Uuid::nil(), first_id_since);
    let mut tenant = String::new();
    while let Some(row) = connection.query_opt(&NEXT_CHARGE_TENANT, &[&tenant]).await? {
        tenant = row.get(0);
        let mut lonely = HashSet::new();
        let mut after = start;
        loop {
            let rows = connection.query(&CHARGES, &[&tenant, &after, &PAGE_ROWS]).await?;
            let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            let (Some(first), Some(last)) = (ids.first(), ids.last()) else { break };
            after = *last;
            report.charges += ids.len() as u64;
            let (near, until) =
                (millis_in(*first).saturating_sub(NEAR_MILLIS), millis_in(*last) + NEAR_MILLIS + 1);
            let mut missing: HashSet<Uuid> = ids.into_iter().collect();
            let near = first_id_of(near);
            remove_told(connection, &tenant, near, first_id_of(until), &mut missing).await?;
            lonely.extend(missing);
        }
        if !lonely.is_empty() {
            remove_told(connection, &tenant, Uuid::nil(), Uuid::max(), &mut lonely).await?;
            remove_discarded(connection, &tenant, &mut lonely).await?;
            // Retention has gone on meanwhile.
            let kept = events_kept_since(connection).await?.map_or(Uuid::nil(), first_id_since);
            lonely.retain(|charge| *charge >= kept);
        }
        report.add(Kind::ChargeWithoutEvent, &tenant, lonely);
    }
    Ok(())
}

async fn events_kept_since(connection: &Connection) -> Result<Option<Timestamp>, Error> {
    let removed_before = retention::removed_before(connection).await?;
    Ok(removed_before.and_then(|before| before.checked_add(CLOCKS_APART).ok()))
}

/// Takes out of `charges` those that an event between the two ids tells of.
async fn remove_told(
    connection: &Connection,
    tenant: &str,
    mut after: Uuid,
    before: Uuid,
    charges: &mut HashSet<Uuid>,
) -> Result<(), Error> {
    while !charges.is_empty() {
        let rows = events_page(connection, tenant, after, before).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.get(0);
        for row in &rows {
            if let Ok(charge) = Uuid::try_parse(row.get(1)) {
                charges.remove(&charge);
            }
        }
    }
    Ok(())
}

async fn remove_discarded(
    connection: &Connection,
    tenant: &str,
    charges: &mut HashSet<Uuid>,
) -> Result<(), Error> {
    let mut after = Uuid::nil();
    loop {
        let rows = connection.query(&DISCARDED, &[&tenant, &after, &PAGE_ROWS]).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.get(0);
        for row in &rows {
            if let Ok(charge) = Uuid::try_parse(row.get(1)) {
                charges.remove(&charge);
            }
        }
    }
}

async fn events_page(
    connection: &Connection,
    tenant: &str,
    after: Uuid,
    before: Uuid,
) -> Result<Vec<tokio_postgres::Row>, Error> {
    let created = ChargeEvent::CREATED;
    connection.query(&EVENTS, &[&tenant, &after, &before, &PAGE_ROWS, &created]).await
}

const MISSING: Statement = Statement::new(
    "look for missing charges",
    "SELECT wanted.id
     FROM unnest($1::text[], $2::uuid[]) AS wanted (tenant_id, id)
     WHERE NOT EXISTS (
         SELECT FROM charges c WHERE c.tenant_id = wanted.tenant_id AND c.id = wanted.id OFFSET 0
     )",
);

/// Charge events without a charge, of those whose ids were minted since then.
///
/// # Errors
/// [`Error::Statement`].
pub async fn events(
    connection: &Connection,
    since: Option<Timestamp>,
    report: &mut Report,
) -> Result<(), Error> {
    let start = since.map_or(Uuid::nil(), first_id_since);
    let mut tenant = String::new();
    while let Some(row) = connection.query_opt(&NEXT_OUTBOX_TENANT, &[&tenant]).await? {
        tenant = row.get(0);
        let mut after = start;
        loop {
            let rows = events_page(connection, &tenant, after, Uuid::max()).await?;
            let Some(last) = rows.last() else { break };
            after = last.get(0);
            let of_charges: Vec<(Uuid, Uuid)> = rows
                .iter()
                .filter(|row| row.get(2))
                // What is no id of a charge is the nil id, which no charge has.
                .map(|row| (row.get(0), Uuid::try_parse(row.get(1)).unwrap_or_default()))
                .collect();
            report.events += of_charges.len() as u64;
            let wanted: Vec<Uuid> = of_charges.iter().map(|(_, charge)| *charge).collect();
            let tenants = vec![tenant.as_str(); wanted.len()];
            let missing = connection.query(&MISSING, &[&tenants, &wanted]).await?;
            let missing: HashSet<Uuid> = missing.iter().map(|row| row.get(0)).collect();
            let lonely = of_charges.iter().filter(|(_, charge)| missing.contains(charge));
            report.add(Kind::EventWithoutCharge, &tenant, lonely.map(|(event, _)| *event));
        }
    }
    Ok(())
}

/// Where a walk over the keys is.
#[derive(Debug, Clone, Default)]
pub struct KeyPlace {
    tenant_id: String,
    endpoint: String,
    key: Uuid,
}

const KEYS: Statement = Statement::new(
    "read keys to reconcile",
    "SELECT tenant_id, endpoint, key, charge_id
     FROM idempotency_keys
     WHERE (tenant_id, endpoint, key) > ($1, $2, $3)
     ORDER BY tenant_id, endpoint, key
     LIMIT $4",
);

/// Keys whose charge is missing, of at least the next `keys_max` keys after `place`. Returns where to
/// go on; `None` at the end of all keys.
///
/// # Errors
/// [`Error::Statement`].
pub async fn keys(
    connection: &Connection,
    mut place: KeyPlace,
    keys_max: u64,
    report: &mut Report,
) -> Result<Option<KeyPlace>, Error> {
    let end = report.keys.saturating_add(keys_max);
    while report.keys < end {
        let KeyPlace { tenant_id, endpoint, key } = &place;
        let rows = connection.query(&KEYS, &[tenant_id, endpoint, key, &PAGE_ROWS]).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        place = KeyPlace { tenant_id: last.get(0), endpoint: last.get(1), key: last.get(2) };
        report.keys += rows.len() as u64;
        let tenants: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        let charges: Vec<Uuid> = rows.iter().map(|row| row.get(3)).collect();
        let missing = connection.query(&MISSING, &[&tenants, &charges]).await?;
        let missing: HashSet<Uuid> = missing.iter().map(|row| row.get(0)).collect();
        for (tenant, charge) in tenants.into_iter().zip(charges) {
            if missing.contains(&charge) {
                report.add(Kind::KeyWithoutCharge, tenant, [charge]);
            }
        }
    }
    Ok(Some(place))
}

const NOW: Statement = Statement::new("ask for the time", "SELECT clock_timestamp()");

/// The database's time, by which a window is counted.
///
/// # Errors
/// [`Error::Statement`].
pub async fn now(connection: &Connection) -> Result<Timestamp, Error> {
    let row = connection.query_opt(&NOW, &[]).await?;
    Ok(row.ok_or(Error::Unreadable { what: "the time" })?.get(0))
}

/// The milliseconds in a UUIDv7: its first 48 bits.
fn millis_in(id: Uuid) -> u64 {
    u64::try_from(id.as_u128() >> 80).unwrap_or(u64::MAX)
}

fn first_id_of(millis: u64) -> Uuid {
    Uuid::from_u128(u128::from(millis) << 80)
}

fn first_id_since(time: Timestamp) -> Uuid {
    first_id_of(u64::try_from(time.as_millisecond()).unwrap_or_default())
}
