//! The servers go down and come back: nothing that was acknowledged is lost.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use harness::answers::Answers;
use harness::client::{Answer, Client};
use harness::eventually::{SOON, eventually_true};
use harness::postgres::connect;
use harness::servers::{Given, Servers};
use harness::service::Wiring;
use harness::stack::{Shape, Stack};
use uuid::Uuid;

use crate::context::{Context, tests};

tests![
    the_database_restarted_under_load_loses_no_acknowledged_charge,
    while_kafka_is_down_charges_go_on_and_wait_unpublished_and_drain_when_it_is_back,
];

const CLIENTS: usize = 4;
const CHARGES_PER_CLIENT: usize = 100;

async fn the_database_restarted_under_load_loses_no_acknowledged_charge(
    context: &Context,
) -> Result<()> {
    // Kafka is shared, and the database a private one: it is killed.
    let shared = context.wiring().await?;
    let given = Given { kafka_brokers: Some(shared.kafka_brokers.clone()), database_url: None };
    let mut servers = Servers::start(given, Some(1), &context.logs).await?;
    let brokers = &shared.kafka_brokers;
    let wiring = context.wiring_on(&servers.database_url, brokers, 1).await?;
    let stack = Stack::start(wiring, Shape { apis: 2, ..Shape::ONE }).await?;
    let answers = Answers::default();
    let apis = [stack.api(0), stack.api(1)];

    let clients = (0..CLIENTS).map(async |number| {
        let client = Client::default();
        for index in 0..CHARGES_PER_CLIENT {
            let (key, amount) = (Uuid::new_v4(), i64::try_from(number * 1000 + index + 1)?);
            let heard = |answer: &Result<Answer>| {
                if let Ok(answer) = answer {
                    answers.note(key, amount, answer);
                }
            };
            client.insist(&apis, number + index, (key, amount), heard).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let total = CLIENTS * CHARGES_PER_CLIENT;
    let restarts = async {
        let server = servers.postgres.as_mut().expect("a private server was started");
        for part in [total / 4, total / 2] {
            let what = format!("{part} charges are acknowledged");
            eventually_true(SOON, &what, async || Ok(answers.keys() >= part)).await?;
            server.kill()?;
            server.start_again().await?;
        }
        Ok(())
    };
    tokio::try_join!(try_join_all(clients), restarts)?;

    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!(answers.keys(), total);
    assert_eq!((verdict.charges, verdict.receipts), (total, total));
    // Asked again after the crashes, every key still has its first answer.
    let client = Client::default();
    for (key, heard) in answers.all() {
        let answer = client.charge(&apis[0], key, heard.amount_cents).await?;
        ensure!(answer.status == 201 && answer.body == heard.body, "key {key} changed its answer");
    }
    stack.stop().await?;
    servers.stop().await
}

async fn while_kafka_is_down_charges_go_on_and_wait_unpublished_and_drain_when_it_is_back(
    context: &Context,
) -> Result<()> {
    const CHARGES: i64 = 50;
    // The database is shared, and Kafka a private one: it is stopped.
    let shared = context.wiring().await?;
    let given = Given { database_url: Some(shared.database_url.clone()), kafka_brokers: None };
    let mut servers = Servers::start(given, Some(1), &context.logs).await?;
    let brokers = servers.kafka_brokers.clone().expect("a private broker was started");
    let wiring = context.wiring_on(&shared.database_url, &brokers, 1).await?;
    let stack = Stack::start(wiring, Shape::ONE).await?;
    let (client, answers) = (Client::default(), Answers::default());
    let charge = async |amount: i64| {
        let key = Uuid::new_v4();
        let answer = client.charge(&stack.api(0), key, amount).await?;
        answers.note(key, amount, &answer);
        ensure!(answer.status == 201, "answered {} while Kafka is down", answer.status);
        Ok(())
    };
    charge(1).await?;
    context.settle(&stack.wiring, &answers).await?;

    let kafka = servers.kafka.as_mut().expect("a private broker was started");
    kafka.kill(0)?;
    for amount in 0..CHARGES {
        charge(100 + amount).await?;
    }
    // The relay has tried, and has marked nothing.
    let errors = || stack.relays[0].metric("outbox_publish_errors_total", &[]);
    let noticed = async || Ok(errors().await? > 0.0);
    eventually_true(SOON, "the relay has met the missing broker", noticed).await?;
    assert_eq!(unpublished(&stack.wiring).await?, CHARGES);
    let ready = client.get(&stack.apis[0].admin_url(), "/readyz").await?;
    assert_eq!(ready.status, 200, "the API is ready without Kafka");

    kafka.start_again().await?;
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.receipts), (51, 51));
    stack.stop().await?;
    servers.stop().await
}

pub async fn unpublished(wiring: &Wiring) -> Result<i64> {
    let client = connect(&wiring.database_url.parse()?).await?;
    let sql = "SELECT count(*) FROM outbox WHERE published_at IS NULL";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
