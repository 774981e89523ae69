//! The checks that say whether the promise was held: what clients were told, the tables and the
//! topic must tell the same story.
//!
//! Only what is there at rest is checked: `drained` waits for that.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::answers::{Answers, KeyAnswers};
use crate::eventually::eventually;
use crate::postgres::connect;
use crate::topic::Record;

/// What was found.
pub struct Verdict {
    pub charges: usize,
    pub events: usize,
    pub records: usize,
    pub receipts: usize,
    pub checks: Vec<Check>,
}

/// One sentence that must be true.
pub struct Check {
    pub sentence: &'static str,
    /// Why it is not; empty when it is.
    pub failures: Vec<String>,
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.failures.is_empty())
    }

    /// Copies in the topic that an effect had to be kept from.
    pub fn duplicates(&self) -> usize {
        self.records - self.events
    }

    /// # Errors
    /// All that is wrong.
    pub fn require(&self) -> Result<()> {
        let mut text = String::new();
        for check in self.checks.iter().filter(|check| !check.failures.is_empty()) {
            let shown = &check.failures[..check.failures.len().min(FAILURES_SHOWN)];
            let _infallible =
                writeln!(text, "not true: {} ({})", check.sentence, check.failures.len());
            for failure in shown {
                let _infallible = writeln!(text, "  {failure}");
            }
        }
        ensure!(text.is_empty(), "{text}");
        Ok(())
    }
}

/// Enough to see a pattern.
const FAILURES_SHOWN: usize = 5;

/// Waits until every event is published and every charge has its receipt.
pub async fn drained(database_url: &str, limit: Duration) -> Result<()> {
    let client = connect(&database_url.parse()?).await?;
    let sql = "SELECT (SELECT count(*) FROM outbox WHERE published_at IS NULL),
                      (SELECT count(*) FROM charges), (SELECT count(*) FROM inbox)";
    eventually(limit, "every event is published and applied", async || {
        let row = client.query_one(sql, &[]).await?;
        let (pending, charges, applied): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        ensure!(
            pending == 0 && applied >= charges,
            "{pending} events are pending, and {applied} of {charges} are applied"
        );
        Ok(Some(()))
    })
    .await
}

/// Compares everything with everything.
pub async fn check(database_url: &str, records: &[Record], answers: &Answers) -> Result<Verdict> {
    let client = connect(&database_url.parse()?).await?;
    let charges = charges(&client).await?;
    let outbox = outbox(&client).await?;
    let receipts = receipts(&client).await?;
    let checks = vec![
        Check { sentence: "a key has one charge", failures: one_charge_a_key(&charges) },
        Check {
            sentence: "an acknowledged key got the same bytes every time, and they are true",
            failures: answers_are_true(&charges, &answers.all()),
        },
        Check {
            sentence: "a charge has one event",
            failures: one_event_a_charge(&charges, &outbox),
        },
        Check {
            sentence: "the events in Kafka are those of the outbox, unchanged",
            failures: kafka_has_the_outbox(&outbox, records),
        },
        Check {
            sentence: "an event has one receipt, of the charge's amount",
            failures: one_receipt_an_event(&charges, &outbox, &receipts),
        },
        Check { sentence: "the totals are equal", failures: totals(&client).await? },
    ];
    let events: HashSet<&str> = records.iter().map(Record::event_id).collect();
    Ok(Verdict {
        charges: charges.len(),
        events: events.len(),
        records: records.len(),
        receipts: receipts.len(),
        checks,
    })
}

struct Charge {
    key: Uuid,
    amount_cents: i64,
    currency: String,
}

struct Event {
    aggregate: String,
    payload: Vec<u8>,
    published: bool,
}

struct Receipt {
    event: Uuid,
    charge: Uuid,
    amount_cents: i64,
    currency: String,
}

async fn charges(client: &Client) -> Result<HashMap<Uuid, Charge>> {
    let sql = "SELECT id, idempotency_key, amount_cents, currency FROM charges";
    let read = |row: &Row| {
        (row.get(0), Charge { key: row.get(1), amount_cents: row.get(2), currency: row.get(3) })
    };
    Ok(client.query(sql, &[]).await?.iter().map(read).collect())
}

async fn outbox(client: &Client) -> Result<HashMap<Uuid, Event>> {
    let sql = "SELECT id, aggregate_id, payload, published_at IS NOT NULL FROM outbox";
    let read = |row: &Row| {
        (row.get(0), Event { aggregate: row.get(1), payload: row.get(2), published: row.get(3) })
    };
    Ok(client.query(sql, &[]).await?.iter().map(read).collect())
}

async fn receipts(client: &Client) -> Result<Vec<Receipt>> {
    let sql = "SELECT event_id, charge_id, amount_cents, currency FROM receipts";
    let read = |row: &Row| Receipt {
        event: row.get(0),
        charge: row.get(1),
        amount_cents: row.get(2),
        currency: row.get(3),
    };
    Ok(client.query(sql, &[]).await?.iter().map(read).collect())
}

fn one_charge_a_key(charges: &HashMap<Uuid, Charge>) -> Vec<String> {
    let mut count: HashMap<Uuid, u32> = HashMap::new();
    for charge in charges.values() {
        *count.entry(charge.key).or_default() += 1;
    }
    let several = count.into_iter().filter(|(_, count)| *count > 1);
    several.map(|(key, count)| format!("key {key} has {count} charges")).collect()
}

fn answers_are_true(
    charges: &HashMap<Uuid, Charge>,
    answers: &HashMap<Uuid, KeyAnswers>,
) -> Vec<String> {
    let wrong = |key: &Uuid, heard: &KeyAnswers| -> Option<String> {
        let body = String::from_utf8_lossy(&heard.body);
        if let Some(other) = &heard.differing {
            return Some(format!("key {key}: {body}, then {}", String::from_utf8_lossy(other)));
        }
        let value: Value = serde_json::from_slice(&heard.body).unwrap_or_default();
        let id = value["id"].as_str().and_then(|id| id.parse().ok());
        let Some(charge) = id.and_then(|id: Uuid| charges.get(&id)) else {
            return Some(format!("key {key}: acknowledged, and no such charge: {body}"));
        };
        let same = charge.key == *key
            && charge.amount_cents == heard.amount_cents
            && value["amountCents"] == heard.amount_cents
            && value["currency"] == charge.currency;
        (!same).then(|| format!("key {key}, amount {}: {body}", heard.amount_cents))
    };
    answers.iter().filter_map(|(key, heard)| wrong(key, heard)).collect()
}

fn one_event_a_charge(
    charges: &HashMap<Uuid, Charge>,
    outbox: &HashMap<Uuid, Event>,
) -> Vec<String> {
    let mut count: HashMap<&str, u32> = HashMap::new();
    for event in outbox.values() {
        *count.entry(&event.aggregate).or_default() += 1;
    }
    let mut failures = Vec::new();
    for id in charges.keys() {
        match count.remove(id.to_string().as_str()) {
            Some(1) => {}
            other => failures.push(format!("charge {id} has {} events", other.unwrap_or(0))),
        }
    }
    failures.extend(count.keys().map(|id| format!("an event of {id}, which is no charge")));
    failures
}

fn kafka_has_the_outbox(outbox: &HashMap<Uuid, Event>, records: &[Record]) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut failures = Vec::new();
    for record in records {
        let id = record.event_id();
        let Some((id, event)) = id.parse().ok().and_then(|id: Uuid| outbox.get_key_value(&id))
        else {
            failures.push(format!("the topic has {id:?}, which is no event of the outbox"));
            continue;
        };
        if event.payload != record.value || event.aggregate != record.key {
            failures
                .push(format!("event {id} is changed at {}/{}", record.partition, record.offset));
        }
        seen.insert(id);
    }
    for (id, event) in outbox {
        if !seen.contains(id) {
            failures.push(format!("event {id} is not in the topic"));
        }
        if !event.published {
            failures.push(format!("event {id} is not marked as published"));
        }
    }
    failures
}

fn one_receipt_an_event(
    charges: &HashMap<Uuid, Charge>,
    outbox: &HashMap<Uuid, Event>,
    receipts: &[Receipt],
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut seen: HashMap<Uuid, u32> = HashMap::new();
    for receipt in receipts {
        *seen.entry(receipt.event).or_default() += 1;
        let same = charges.get(&receipt.charge).is_some_and(|charge| {
            charge.amount_cents == receipt.amount_cents && charge.currency == receipt.currency
        });
        if !same {
            failures.push(format!("the receipt of {} differs from its charge", receipt.event));
        }
    }
    for id in outbox.keys() {
        match seen.remove(id) {
            Some(1) => {}
            other => failures.push(format!("event {id} has {} receipts", other.unwrap_or(0))),
        }
    }
    failures.extend(seen.keys().map(|id| format!("a receipt of {id}, which is no event")));
    failures
}

/// Per tenant and currency: charges, receipts and daily totals add up to the same.
async fn totals(client: &Client) -> Result<Vec<String>> {
    let sql = "SELECT 'charges', tenant_id, currency, count(*), sum(amount_cents)::text
               FROM charges GROUP BY 2, 3
               UNION ALL
               SELECT 'receipts', tenant_id, currency, count(*), sum(amount_cents)::text
               FROM receipts GROUP BY 2, 3
               UNION ALL
               SELECT 'daily totals', tenant_id, currency, sum(charges)::bigint, sum(amount_cents)::text
               FROM daily_totals GROUP BY 2, 3";
    let mut sums: BTreeMap<(String, String), BTreeMap<String, (i64, String)>> = BTreeMap::new();
    for row in client.query(sql, &[]).await? {
        let of = sums.entry((row.get(1), row.get(2))).or_default();
        of.insert(row.get(0), (row.get(3), row.get(4)));
    }
    let equal = |of: &BTreeMap<String, (i64, String)>| {
        of.len() == 3 && of.values().collect::<HashSet<_>>().len() == 1
    };
    let unequal = sums.into_iter().filter(|(_, of)| !equal(of));
    Ok(unequal.map(|((tenant, currency), of)| format!("{tenant} {currency}: {of:?}")).collect())
}
