//! Faults of the machine under an API: its own death at a chosen moment, a database server that
//! stands still, no descriptor left.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use harness::client::{Client, charge_request};
use harness::eventually::{SOON, eventually, eventually_true};
use harness::hold::{Hold, When};
use harness::postgres::connect;
use harness::servers::{Given, Servers};
use harness::service::{Role, Service};
use harness::stack::{Shape, Stack};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::context::{Context, tests};
use crate::idempotency::{Rows, rows};

tests![
    a_process_that_dies_between_its_commit_and_its_answer_has_charged_and_another_one_replays,
    a_database_server_that_stands_still_is_503_and_the_same_key_is_charged_afterwards,
    a_process_without_a_free_descriptor_serves_again_when_there_is_one,
];

const ONE_CHARGE: Rows = Rows { charges: 1, events: 1, keys: 1 };

async fn a_process_that_dies_between_its_commit_and_its_answer_has_charged_and_another_one_replays(
    context: &Context,
) -> Result<()> {
    let mut stack = context.stack(Shape { apis: 2, relays: 0, consumers: 0 }).await?;
    let (client, key) = (Client::default(), Uuid::new_v4());
    let (doomed, other) = (stack.api(0), stack.api(1));
    let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;

    let call = async { client.charge(&doomed, key, 4900).await };
    let kill = async {
        gate.wait_for_blocked(1).await?;
        // It stands still, so that it cannot answer what it is about to be told.
        stack.apis[0].pause()?;
        gate.release().await?;
        eventually_true(SOON, "the charge is committed", async || {
            Ok(rows(&stack).await? == ONE_CHARGE)
        })
        .await?;
        stack.apis[0].kill()
    };
    let (lost, killed) = tokio::join!(call, kill);
    killed?;
    ensure!(lost.is_err(), "a killed process has answered: {lost:?}");

    let answer = client.charge(&other, key, 4900).await?;
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, "true"));
    let database = connect(&stack.wiring.database_url.parse()?).await?;
    let stored = database.query_one("SELECT response_body FROM idempotency_keys", &[]).await?;
    assert_eq!(answer.body, stored.get::<_, Vec<u8>>(0));
    assert_eq!(rows(&stack).await?, ONE_CHARGE);
    stack.stop().await
}

async fn a_database_server_that_stands_still_is_503_and_the_same_key_is_charged_afterwards(
    context: &Context,
) -> Result<()> {
    let shared = context.wiring().await?;
    let brokers = &shared.kafka_brokers;
    let given = Given { kafka_brokers: Some(brokers.clone()), database_url: None };
    let mut servers = Servers::start(given, Some(1), &context.logs).await?;
    let mut wiring = context.wiring_on(&servers.database_url, brokers, 1).await?;
    for (key, value) in [
        ("ONCEBOX_HTTP_DEADLINE", "2s"),
        ("ONCEBOX_IDEMPOTENCY_WAIT_MAX", "0s"),
        ("ONCEBOX_DATABASE_CONNECT_TIMEOUT", "500ms"),
    ] {
        wiring.extra.push((Role::ChargeApi, key.to_owned(), value.to_owned()));
    }
    let stack = Stack::start(wiring, Shape::API).await?;
    let (client, api, key) = (Client::default(), stack.api(0), Uuid::new_v4());
    let before = client.charge(&api, Uuid::new_v4(), 4900).await?;
    let location = before.header("location").to_owned();
    let operator = connect(&stack.wiring.database_url.parse()?).await?;

    // The kernel still accepts connections for a postmaster that is stopped; nobody ever speaks.
    let server = servers.postgres.as_mut().expect("a private server was started");
    server.pause()?;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    operator.query(end, &[]).await?;
    for _ in 0..3 {
        let refused = client.charge(&api, key, 4900).await?;
        assert_eq!((refused.status, refused.problem().as_str()), (503, "unavailable"));
        assert_eq!(client.get(&api, &location).await?.status, 503);
    }
    eventually_true(SOON, "it is not ready", async || {
        Ok(client.get(&stack.apis[0].admin_url(), "/readyz").await?.status == 503)
    })
    .await?;

    server.resume()?;
    let answer = client.insist(&[api], 0, (key, 4900), |_| {}).await?;
    assert_eq!(answer.header("idempotent-replayed"), "false");
    assert_eq!(rows(&stack).await?, Rows { charges: 2, events: 2, keys: 2 });
    stack.stop().await?;
    servers.stop().await
}

async fn a_process_without_a_free_descriptor_serves_again_when_there_is_one(
    context: &Context,
) -> Result<()> {
    const SPARE: usize = 10;
    const CONNECTIONS: usize = 3 * SPARE;
    let wiring = context.wiring().await?;
    let mut api = Service::start(Role::ChargeApi, "charge-api", &wiring).await?;
    api.ready().await?;
    let (client, to) = (Client::default(), api.http().context("an API has a public port")?);
    let http = api.url().context("an API has a public port")?;
    assert_eq!(client.charge(&http, Uuid::new_v4(), 4900).await?.status, 201);
    let descriptors =
        std::path::PathBuf::from(format!("/proc/{}/fd", api.pid().context("it runs")?));
    let open = || Ok::<_, anyhow::Error>(std::fs::read_dir(&descriptors)?.count());
    let limit = open()? + SPARE;
    let pid = api.pid().context("it runs")?.to_string();
    let limited =
        Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={limit}")]).status()?;
    ensure!(limited.success(), "prlimit (util-linux): {limited}");

    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(to).await?;
        connection.write_all(&charge_request(Uuid::new_v4(), 4900)).await?;
        connections.push(connection);
    }
    eventually_true(SOON, "there is no descriptor left", async || Ok(open()? >= limit)).await?;
    // Those that were accepted are answered; when they go, so are those that waited.
    while !connections.is_empty() {
        let mut left = Vec::new();
        for connection in connections {
            let mut answer = [0; 12];
            match connection.try_read(&mut answer) {
                Ok(_) => ensure!(answer.starts_with(b"HTTP/1.1 201"), "{answer:?}"),
                Err(_) => left.push(connection),
            }
        }
        connections = left;
        if let Some(connection) = connections.first() {
            connection.readable().await?;
        }
    }
    eventually(SOON, "a new client is served", async || {
        Ok((client.charge(&http, Uuid::new_v4(), 4900).await?.status == 201).then_some(()))
    })
    .await?;
    let ended = api.stop(SOON).await?;
    ensure!(ended.success(), "it ended with {ended}");
    Ok(())
}
