//! One effect per event, whatever happens to the consumer and its offsets.

use anyhow::{Context as _, Result};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::stack::{STOP_LIMIT, Shape, Stack};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use uuid::Uuid;

use crate::context::{Context, tests};

tests![a_topic_read_again_from_its_beginning_has_no_second_effect,];

async fn a_topic_read_again_from_its_beginning_has_no_second_effect(
    context: &Context,
) -> Result<()> {
    const CHARGES: i64 = 20;
    let mut stack = context.stack(Shape::ONE).await?;
    let (client, answers) = (Client::default(), Answers::default());
    for amount in 1..=CHARGES {
        let key = Uuid::new_v4();
        answers.note(key, amount, &client.charge(&stack.api(0), key, amount).await?);
    }
    context.settle(&stack.wiring, &answers).await?;

    // As after the loss of its offsets. It leaves its group first: nobody else may commit then.
    let status = stack.consumers[0].stop(STOP_LIMIT).await?;
    assert!(status.success(), "the consumer ended with {status}");
    forget_offsets(context, &stack).await?;
    stack.consumers[0].start_again().await?;

    let consumer = &stack.consumers[0];
    eventually_true(SOON, "every event was seen again", async || {
        let duplicates = [("outcome", "duplicate")];
        Ok(consumer.metric("inbox_events_total", &duplicates).await? >= 20.0)
    })
    .await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!(verdict.receipts, 20);
    stack.stop().await
}

async fn forget_offsets(context: &Context, stack: &Stack) -> Result<()> {
    let (topic, group) = (context.topic(&stack.wiring), stack.wiring.group.clone());
    let commit = move || -> Result<()> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &topic.brokers)
            .set("group.id", &group)
            .create()?;
        let mut offsets = TopicPartitionList::new();
        for partition in 0..topic.partitions {
            offsets.add_partition_offset(&topic.name, partition, Offset::Offset(0))?;
        }
        consumer.commit(&offsets, CommitMode::Sync).context("setting the group's offsets back")
    };
    tokio::task::spawn_blocking(commit).await?
}
