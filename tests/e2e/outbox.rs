//! A charge and its event are one; the event gets out at least once.

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Fault, Hold, When};
use harness::stack::Shape;
use uuid::Uuid;

use crate::context::{Context, tests};
use crate::idempotency::{Rows, rows};
use crate::versions::published;

tests![
    a_charge_and_its_event_never_exist_without_each_other_whichever_statement_fails,
    a_relay_killed_between_the_acknowledgement_and_the_mark_republishes_without_a_second_effect,
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
    ensure!(
        published(&stack.wiring.database_url).await? == 0,
        "the mark must have died with the relay"
    );
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
