//! A charge and its event are one; the event gets out at least once and in order.

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Fault, Hold, When};
use harness::postgres::connect;
use harness::stack::{STOP_LIMIT, Shape, Stack};
use harness::topic::Record;
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

use crate::context::{Context, tests};
use crate::idempotency::{Rows, rows};

tests![
    a_charge_and_its_event_never_exist_without_each_other_whichever_statement_fails,
    a_relay_killed_between_the_acknowledgement_and_the_mark_republishes_without_a_second_effect,
    events_of_an_aggregate_stay_in_order_while_a_relay_is_killed_and_comes_back,
    relays_that_are_told_to_stop_leave_no_duplicates,
];

async fn a_charge_and_its_event_never_exist_without_each_other_whichever_statement_fails(
    context: &Context,
) -> Result<()> {
    let stack = context.stack(Shape::API).await?;
    let client = Client::default();
    let mut done = 0;

    for table in ["charges", "outbox", "idempotency_keys"] {
        for when in [When::BeforeInsert, When::Commit] {
            let key = Uuid::new_v4();
            let fault = Fault::on(&stack.wiring.database_url, table, when).await?;
            let failed = client.charge(&stack.api(0), key, 4900).await?;
            let left = rows(&stack).await?;
            fault.remove().await?;
            let again = client.charge(&stack.api(0), key, 4900).await?;

            ensure!(matches!(failed.status, 500 | 503), "{table} {when}: {}", failed.status);
            assert_eq!(left, Rows { charges: done, events: done, keys: done }, "{table} {when}");
            done += 1;
            assert_eq!(again.status, 201, "{table} {when}: the same key afterwards");
            assert_eq!(again.header("idempotent-replayed"), "false", "{table} {when}");
        }
    }
    stack.stop().await
}

async fn a_relay_killed_between_the_acknowledgement_and_the_mark_republishes_without_a_second_effect(
    context: &Context,
) -> Result<()> {
    let mut stack = context.stack(Shape::ONE).await?;
    let (client, key, answers) = (Client::default(), Uuid::new_v4(), Answers::default());
    let gate = Hold::gate(&stack.wiring.database_url, "outbox", When::BeforeUpdate).await?;
    let topic = context.topic(&stack.wiring);

    let answer = client.charge(&stack.api(0), key, 4900).await?;
    answers.note(key, 4900, &answer);
    // A relay marks only what was acknowledged, so its record is in Kafka now.
    gate.wait_for_blocked(1).await?;
    assert_eq!(topic.read_all().await?.len(), 1);
    stack.relays[0].kill()?;
    gate.terminate_blocked().await?;
    gate.release().await?;
    ensure!(published(&stack).await? == 0, "the mark must have died with the relay");
    stack.relays[0].start_again().await?;

    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), (1, 2, 1));
    let consumer = &stack.consumers[0];
    eventually_true(SOON, "the duplicate is counted", async || {
        let duplicates = [("outcome", "duplicate")];
        Ok(consumer.metric("inbox_events_total", &duplicates).await? == 1.0)
    })
    .await?;
    stack.stop().await
}

async fn events_of_an_aggregate_stay_in_order_while_a_relay_is_killed_and_comes_back(
    context: &Context,
) -> Result<()> {
    let mut stack = context.stack(Shape { apis: 0, relays: 2, consumers: 0 }).await?;
    let topic = context.topic(&stack.wiring);

    // Any service may write to the outbox: forty aggregates, in four portions.
    for portion in 0..4 {
        write_versions(&stack, 40, portion * 25 + 1, portion * 25 + 25).await?;
        match portion {
            0 => stack.relays[0].kill()?,
            2 => stack.relays[0].start_again().await?,
            _ => {}
        }
        eventually_true(SOON, "some of it is published", async || {
            Ok(published(&stack).await? > i64::from(portion) * 1000)
        })
        .await?;
    }
    eventually_true(SOON, "all of it is published", async || Ok(published(&stack).await? == 4000))
        .await?;

    let records = topic.read_all().await?;
    let ids: HashSet<&str> = records.iter().map(Record::event_id).collect();
    assert_eq!(ids.len(), 4000, "distinct events");
    for (aggregate, versions) in first_seen(&records) {
        let wanted: Vec<i64> = (1..=100).collect();
        assert_eq!(versions, wanted, "the versions of {aggregate}, as a consumer sees them first");
    }
    stack.stop().await
}

async fn relays_that_are_told_to_stop_leave_no_duplicates(context: &Context) -> Result<()> {
    let mut stack = context.stack(Shape { apis: 0, relays: 2, consumers: 0 }).await?;
    let topic = context.topic(&stack.wiring);

    for round in 0..4 {
        write_versions(&stack, 40, round * 25 + 1, round * 25 + 25).await?;
        let relay = &mut stack.relays[usize::try_from(round % 2)?];
        let status = relay.stop(STOP_LIMIT).await?;
        ensure!(status.success(), "the relay ended with {status}\n{}", relay.log().tail());
        relay.start_again().await?;
    }
    eventually_true(SOON, "all of it is published", async || Ok(published(&stack).await? == 4000))
        .await?;

    assert_eq!(topic.read_all().await?.len(), 4000, "records of 4000 events");
    stack.stop().await
}

/// Versions `from` to `to` of so many aggregates, the aggregates mixed, each in order.
async fn write_versions(stack: &Stack, aggregates: i32, from: i32, to: i32) -> Result<()> {
    let client = connect(&stack.wiring.database_url.parse()?).await?;
    let sql = "INSERT INTO outbox (aggregate_id, aggregate_version, event_type, payload)
               SELECT 'aggregate-' || number, version, 'Counted', version::text::bytea
               FROM generate_series($2::int, $3::int) AS version,
                    generate_series(1, $1::int) AS number
               ORDER BY 2, number";
    client.execute(sql, &[&aggregates, &from, &to]).await?;
    Ok(())
}

async fn published(stack: &Stack) -> Result<i64> {
    let client = connect(&stack.wiring.database_url.parse()?).await?;
    let sql = "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The versions of each aggregate in the order of their first copies. An aggregate is in one
/// partition, and records come sorted by offset within it.
fn first_seen(records: &[Record]) -> BTreeMap<&str, Vec<i64>> {
    let mut seen = HashSet::new();
    let mut order: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for record in records.iter().filter(|record| seen.insert(record.event_id())) {
        let version = record.header("ce_sequence").parse().unwrap_or(-1);
        order.entry(&record.key).or_default().push(version);
    }
    order
}
