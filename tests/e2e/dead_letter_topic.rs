//! Every dead letter gets into the dead-letter topic, whatever happens on the way, and no partition
//! waits for that.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually, eventually_true};
use harness::hold::{Hold, When};
use harness::postgres::connect;
use harness::service::{Role, Wiring};
use harness::stack::{STOP_LIMIT, Shape, Stack};
use harness::topic::{Record, Topic};
use uuid::Uuid;

use crate::context::{Context, dead_letter_topic_name, tests};

tests![
    a_record_that_cannot_be_applied_arrives_as_it_was_and_says_where_it_came_from,
    while_the_topic_is_missing_events_are_applied_and_once_it_is_there_the_letters_are_in_it,
    of_two_consumers_each_letter_is_published_by_one,
    a_consumer_killed_between_kafka_and_its_mark_publishes_the_letter_again,
];

const CONSUMER: Shape = Shape { apis: 0, relays: 0, consumers: 1 };
const POISON: &[u8] = b"\xff\xfe\0 is no charge";
/// The source that an unreadable record is on.
const PARTITION: i32 = 1;

async fn a_record_that_cannot_be_applied_arrives_as_it_was_and_says_where_it_came_from(
    context: &Context,
) -> Result<()> {
    let wiring = wiring(context).await?;
    let dead = context.dead_letter_topic(&wiring).await?;
    let (topic, group) = (context.topic(&wiring), wiring.group.clone());
    let stack = Stack::start(wiring, CONSUMER).await?;
    let id = poison(&topic, "order-7").await?;

    let found = &eventually_records(&dead, 1).await?[0];

    assert_eq!((found.key.as_str(), found.value.as_slice()), ("order-7", POISON));
    let source = &topic.read_all().await?[0];
    let mut headers = found.headers.clone();
    for (name, value) in &source.headers {
        assert_eq!(headers.remove(name).as_ref(), Some(value), "{name}");
    }
    assert!(
        headers.remove("dead_letter_reason").is_some_and(|it| it.contains("cannot be applied"))
    );
    for unknown in ["origin_timestamp", "dead_letter_id", "dead_letter_time"] {
        assert!(headers.remove(unknown).is_some_and(|value| !value.is_empty()), "{unknown}");
    }
    let origin = [
        ("dead_letter_attempts", "1"),
        ("dead_letter_consumer", &group),
        ("origin_offset", "0"),
        ("origin_partition", "1"),
        ("origin_topic", &topic.name),
    ];
    let origin = origin.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers.into_iter().collect::<Vec<_>>(), origin);
    assert_eq!(found.event_id(), id);
    eventually_published(&stack, 1).await?;
    stack.stop().await
}

async fn while_the_topic_is_missing_events_are_applied_and_once_it_is_there_the_letters_are_in_it(
    context: &Context,
) -> Result<()> {
    let wiring = wiring(context).await?;
    let missing = dead_letter_topic_name(&wiring);
    let topic = context.topic(&wiring);
    let mut stack = Stack::start(wiring, Shape::ONE).await?;
    poison(&topic, "a").await?;
    let consumer = &stack.consumers[0];
    eventually_true(SOON, "a failure is counted", async || {
        Ok(consumer.metric("inbox_dead_letter_publish_errors_total", &[]).await? >= 1.0)
    })
    .await?;
    eventually_true(SOON, "what is unpublished is counted", async || {
        Ok(consumer.metric("inbox_dead_letters_unpublished", &[]).await? == 1.0)
    })
    .await?;
    let said =
        |log: &str| log.lines().any(|line| line.contains(&missing) && line.contains("create it"));
    ensure!(said(&consumer.log().text()), "the log does not tell\n{}", consumer.log().tail());

    // The partition of the letter has moved on.
    consumer.ready().await?;
    let client = Client::default();
    for _ in 0..10 {
        let key = Uuid::new_v4();
        let answer = client.charge(&stack.api(0), key, 4900).await?;
        Answers::default().note(key, 4900, &answer);
    }
    poison(&topic, "b").await?;
    eventually_true(SOON, "all that can be is applied", async || {
        Ok(count(&stack.wiring, "receipts").await? == 10
            && count(&stack.wiring, "dead_letters").await? == 2)
    })
    .await?;
    // It ends while its letters cannot get anywhere.
    let status = stack.consumers[0].stop(STOP_LIMIT).await?;
    ensure!(status.success(), "the consumer ended with {status}");
    stack.consumers[0].start_again().await?;

    let dead = context.dead_letter_topic(&stack.wiring).await?;
    let records = eventually_records(&dead, 2).await?;
    let keys: BTreeSet<_> = records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, BTreeSet::from(["a", "b"]));
    let consumer = &stack.consumers[0];
    eventually_true(SOON, "nothing is unpublished", async || {
        Ok(consumer.metric("inbox_dead_letters_unpublished", &[]).await? == 0.0
            && consumer.metric("inbox_dead_letters_published_total", &[]).await? == 2.0)
    })
    .await?;
    stack.stop().await
}

async fn of_two_consumers_each_letter_is_published_by_one(context: &Context) -> Result<()> {
    const LETTERS: usize = 60;
    let wiring = wiring(context).await?;
    let topic = context.topic(&wiring);
    // They are there before the topic is, so that both have much to do at once.
    let mut stack = Stack::start(wiring, CONSUMER).await?;
    for number in 0..LETTERS {
        poison(&topic, &number.to_string()).await?;
    }
    eventually_true(SOON, "all are dead letters", async || {
        Ok(count(&stack.wiring, "dead_letters").await? == LETTERS as i64)
    })
    .await?;
    stack.consumers[0].stop(STOP_LIMIT).await?;
    let due = "UPDATE dead_letter_publications SET not_before = '-infinity'";
    connect(&stack.wiring.database_url.parse()?).await?.batch_execute(due).await?;
    let dead = context.dead_letter_topic(&stack.wiring).await?;
    stack.consumers[0].start_again().await?;
    stack.add(Role::ChargeConsumer).await?;

    eventually_published(&stack, LETTERS as i64).await?;

    let records = dead.read_all().await?;
    let ids: BTreeSet<_> = records.iter().map(|record| record.header("dead_letter_id")).collect();
    assert_eq!((ids.len(), records.len()), (LETTERS, LETTERS), "letters, records");
    let sum = async |name: &str| {
        let (one, other) = (&stack.consumers[0], &stack.consumers[1]);
        Ok::<f64, anyhow::Error>(one.metric(name, &[]).await? + other.metric(name, &[]).await?)
    };
    assert_eq!(sum("inbox_dead_letters_published_total").await?, 60.0);
    stack.stop().await
}

async fn a_consumer_killed_between_kafka_and_its_mark_publishes_the_letter_again(
    context: &Context,
) -> Result<()> {
    let wiring = wiring(context).await?;
    let dead = context.dead_letter_topic(&wiring).await?;
    let topic = context.topic(&wiring);
    let mut stack = Stack::start(wiring, CONSUMER).await?;
    let (table, mark) = ("dead_letter_publications", When::BeforeUpdateOf("published_at"));
    let gate = Hold::gate(&stack.wiring.database_url, table, mark).await?;
    poison(&topic, "a").await?;

    gate.wait_for_blocked(1).await?;
    assert_eq!(dead.read_all().await?.len(), 1);
    stack.consumers[0].kill()?;
    gate.terminate_blocked().await?;
    gate.release().await?;
    assert_eq!(count(&stack.wiring, UNPUBLISHED).await?, 1);
    stack.consumers[0].start_again().await?;

    // After the lease of the one that was killed.
    let records = eventually_records(&dead, 2).await?;
    assert_eq!(records[0].header("dead_letter_id"), records[1].header("dead_letter_id"));
    eventually_published(&stack, 1).await?;
    stack.stop().await
}

const UNPUBLISHED: &str = "dead_letter_publications WHERE published_at IS NULL";

async fn wiring(context: &Context) -> Result<Wiring> {
    let mut wiring = context.wiring().await?;
    let name = dead_letter_topic_name(&wiring);
    wiring.extra.push((Role::ChargeConsumer, "ONCEBOX_KAFKA_DEAD_LETTER_TOPIC".into(), name));
    Ok(wiring)
}

/// Produces a record that its envelope says is a charge, and that is none; returns its event id.
async fn poison(topic: &Topic, key: &str) -> Result<String> {
    let id = Uuid::now_v7().to_string();
    let headers = [
        ("ce_id", id.as_bytes()),
        ("ce_type", b"ChargeCreated"),
        ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("of_any_bytes", b"\xff\0\x01"),
    ];
    topic.produce(PARTITION, key, &headers, Some(POISON)).await?;
    Ok(id)
}

async fn eventually_records(topic: &Topic, least: usize) -> Result<Vec<Record>> {
    eventually(SOON, &format!("{least} record(s) in {}", topic.name), async || {
        let records = topic.read_all().await?;
        Ok((records.len() >= least).then_some(records))
    })
    .await
}

/// Waits until so many letters are marked, and demands that they are all.
async fn eventually_published(stack: &Stack, letters: i64) -> Result<()> {
    eventually_true(SOON, &format!("{letters} letter(s) are marked"), async || {
        Ok(count(&stack.wiring, UNPUBLISHED).await? == 0)
    })
    .await?;
    let marked = count(&stack.wiring, "dead_letter_publications").await?;
    ensure!(marked == letters, "{marked} letters, and {letters} expected");
    Ok(())
}

async fn count(wiring: &Wiring, from: &str) -> Result<i64> {
    let client = connect(&wiring.database_url.parse()?).await?;
    Ok(client.query_one(&format!("SELECT count(*) FROM {from}"), &[]).await?.get(0))
}
