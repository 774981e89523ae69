//! Three brokers, a record acknowledged when two have it: what is left when they die, stand still and
//! come back.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::kafka::Kafka;
use harness::servers::{Given, Servers};
use harness::service::Wiring;
use harness::stack::{Shape, Stack};
use harness::topic::Topic;
use tokio::sync::Mutex;

use crate::charges::{charge, charge_until};
use crate::context::{Context, tests};
use crate::servers::unpublished;
use crate::versions;

tests![
    brokers_killed_one_after_the_other_under_load_lose_nothing_and_keep_the_order,
    while_two_of_three_brokers_are_down_charges_go_on_and_are_published_when_they_are_back,
    records_that_a_frozen_leader_did_not_acknowledge_are_published_again_and_in_order,
];

const BROKERS: usize = 3;
/// Three brokers are a gigabyte, and keep a machine busy.
static ONE_CLUSTER: Mutex<()> = Mutex::const_new(());
/// Two relays, and whoever writes to the outbox.
const RELAYS: Shape = Shape { apis: 0, relays: 2, consumers: 0 };

async fn brokers_killed_one_after_the_other_under_load_lose_nothing_and_keep_the_order(
    context: &Context,
) -> Result<()> {
    let _turn = ONE_CLUSTER.lock().await;
    let (mut servers, wiring) = cluster(context).await?;
    let charging = Stack::start(wiring, Shape::ONE).await?;
    let mut wiring = another(context, &charging.wiring).await?;
    wiring.logs = wiring.logs.join("counting");
    let counting = Stack::start(wiring, RELAYS).await?;
    let topics = [context.topic(&charging.wiring), context.topic(&counting.wiring)];
    let (over, answers) = (AtomicBool::new(false), Answers::default());

    let kills = async {
        let kafka = kafka(&mut servers);
        for node in 0..BROKERS {
            for topic in &topics {
                in_sync(topic).await?;
            }
            kafka.kill(node)?;
            versions::goes_on(&counting.wiring.database_url, 1000).await?;
            kafka.start_again().await?;
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let api = charging.api(0);
    let charges = charge_until(&api, &answers, &over);
    let versions = versions::write_until(&counting.wiring.database_url, &over);
    let ((), last, ()) = tokio::try_join!(charges, versions, kills)?;

    let verdict = context.settle(&charging.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (answers.keys(), answers.keys()));
    // A record that was not acknowledged in time may be there, and is sent again: each is counted.
    let consumer = &charging.consumers[0];
    let duplicates = consumer.metric("inbox_events_total", &[("outcome", "duplicate")]).await?;
    ensure!(duplicates >= verdict.duplicates() as f64, "{duplicates} of {}", verdict.duplicates());
    versions::all_published(&counting.wiring.database_url, last).await?;
    versions::require(&topics[1].read_all().await?, last, usize::MAX)?;
    charging.stop().await?;
    counting.stop().await?;
    servers.stop().await
}

async fn while_two_of_three_brokers_are_down_charges_go_on_and_are_published_when_they_are_back(
    context: &Context,
) -> Result<()> {
    const CHARGES: usize = 50;
    let _turn = ONE_CLUSTER.lock().await;
    let (mut servers, wiring) = cluster(context).await?;
    let stack = Stack::start(wiring, Shape::ONE).await?;
    let (client, answers) = (Client::default(), Answers::default());
    charge(&stack.api(0), &answers).await?;
    context.settle(&stack.wiring, &answers).await?;
    in_sync(&context.topic(&stack.wiring)).await?;

    let kafka = kafka(&mut servers);
    kafka.kill(0)?;
    kafka.kill(1)?;
    for _ in 0..CHARGES {
        charge(&stack.api(0), &answers).await?;
    }
    let errors = || stack.relays[0].metric("outbox_publish_errors_total", &[]);
    eventually_true(SOON, "the relay has met the missing brokers", async || {
        Ok(errors().await? > 0.0)
    })
    .await?;
    assert_eq!(unpublished(&stack.wiring).await?, i64::try_from(CHARGES)?);
    let ready = client.get(&stack.apis[0].admin_url(), "/readyz").await?;
    assert_eq!(ready.status, 200, "the API is ready without Kafka");

    kafka.start_again().await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (CHARGES + 1, CHARGES + 1));
    stack.stop().await?;
    servers.stop().await
}

async fn records_that_a_frozen_leader_did_not_acknowledge_are_published_again_and_in_order(
    context: &Context,
) -> Result<()> {
    let _turn = ONE_CLUSTER.lock().await;
    let (mut servers, wiring) = cluster(context).await?;
    let stack = Stack::start(wiring, RELAYS).await?;
    let url = &stack.wiring.database_url;
    let topic = context.topic(&stack.wiring);
    let over = AtomicBool::new(false);

    let freezes = async {
        let kafka = kafka(&mut servers);
        // It wakes up while it still is the leader to all, and then after another has taken over.
        for taken_over in [false, true] {
            in_sync(&topic).await?;
            versions::goes_on(url, 1000).await?;
            let leader = usize::try_from(topic.replication().await?[0].leader)? - 1;
            let before = timeouts(&stack).await?;
            kafka.pause(leader)?;
            eventually_true(SOON, "records are given up", async || {
                Ok(timeouts(&stack).await? > before)
            })
            .await?;
            if taken_over {
                versions::goes_on(url, 1000).await?;
            }
            kafka.resume(leader)?;
        }
        over.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (last, ()) = tokio::try_join!(versions::write_until(url, &over), freezes)?;

    versions::all_published(url, last).await?;
    versions::require(&topic.read_all().await?, last, usize::MAX)?;
    stack.stop().await?;
    servers.stop().await
}

/// The database is shared, and the brokers are the test's own.
async fn cluster(context: &Context) -> Result<(Servers, Wiring)> {
    let shared = context.wiring().await?;
    let given = Given { database_url: Some(shared.database_url.clone()), kafka_brokers: None };
    let servers = Servers::start(given, Some(BROKERS), &context.logs).await?;
    let brokers = servers.kafka_brokers.clone().expect("private brokers were started");
    let wiring = context.wiring_on(&shared.database_url, &brokers, 3).await?;
    Ok((servers, wiring))
}

async fn another(context: &Context, wiring: &Wiring) -> Result<Wiring> {
    context.wiring_on(&wiring.database_url, &wiring.kafka_brokers, 3).await
}

fn kafka(servers: &mut Servers) -> &mut Kafka {
    servers.kafka.as_mut().expect("private brokers were started")
}

async fn in_sync(topic: &Topic) -> Result<()> {
    let what = format!("every broker has all of {}", topic.name);
    eventually_true(SOON, &what, async || {
        Ok(topic.replication().await?.iter().all(|partition| partition.in_sync == BROKERS))
    })
    .await
}

async fn timeouts(stack: &Stack) -> Result<f64> {
    let mut sum = 0.0;
    for relay in &stack.relays {
        let class = [("class", "timeout")];
        sum += relay.metrics().await?.sum("outbox_publish_errors_total", &class).unwrap_or(0.0);
    }
    Ok(sum)
}
