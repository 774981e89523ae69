//! One key, at most one charge, always the same answer.

use anyhow::{Context as _, Result, ensure};
use futures_util::future::join_all;
use harness::answers::Answers;
use harness::client::{Answer, Client, Parting, charge_request, leave};
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Hold, When};
use harness::postgres::connect;
use harness::stack::{Shape, Stack};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::context::{Context, tests};

tests![
    the_same_key_twice_is_one_charge_one_event_one_receipt_and_the_same_bytes,
    the_same_key_for_another_amount_is_refused_with_422_and_stores_nothing,
    a_second_call_while_the_first_one_runs_gets_409,
    a_second_call_at_another_process_gets_409,
    another_amount_while_the_first_call_runs_gets_422_at_every_process,
    ten_parallel_calls_are_one_execution,
    a_client_that_leaves_before_the_answer_is_charged_once,
    a_process_killed_with_a_charge_in_it_leaves_all_of_it_or_nothing,
];

const TWO_APIS: Shape = Shape { apis: 2, relays: 0, consumers: 0 };

async fn the_same_key_twice_is_one_charge_one_event_one_receipt_and_the_same_bytes(
    context: &Context,
) -> Result<()> {
    let stack = context.stack(Shape::ONE).await?;
    let (client, key, answers) = (Client::default(), Uuid::new_v4(), Answers::default());

    let first = client.charge(&stack.api(0), key, 4900).await?;
    let second = client.charge(&stack.api(0), key, 4900).await?;

    for answer in [&first, &second] {
        answers.note(key, 4900, answer);
    }
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.header("idempotent-replayed"), "false");
    assert_eq!(second.header("idempotent-replayed"), "true");
    assert_eq!(first.body, second.body, "the bytes of the answer");
    assert_eq!(first.header("location"), second.header("location"));
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), (1, 1, 1));
    stack.stop().await
}

async fn the_same_key_for_another_amount_is_refused_with_422_and_stores_nothing(
    context: &Context,
) -> Result<()> {
    let stack = context.stack(Shape::API).await?;
    let (client, key) = (Client::default(), Uuid::new_v4());

    let first = client.charge(&stack.api(0), key, 4900).await?;
    let before = rows(&stack).await?;
    let other = client.charge(&stack.api(0), key, 4901).await?;

    assert_eq!(first.status, 201);
    assert_eq!((other.status, other.problem().as_str()), (422, "idempotency-key-reused"));
    assert_eq!(other.header("content-type"), "application/problem+json");
    assert_eq!(rows(&stack).await?, before);
    assert_eq!(before, Rows { charges: 1, events: 1, keys: 1 });
    stack.stop().await
}

async fn a_second_call_while_the_first_one_runs_gets_409(context: &Context) -> Result<()> {
    let stack = context.stack(Shape::API).await?;
    one_winner_and_one_409(&stack, &stack.api(0), &stack.api(0)).await?;
    stack.stop().await
}

async fn a_second_call_at_another_process_gets_409(context: &Context) -> Result<()> {
    let stack = context.stack(TWO_APIS).await?;
    one_winner_and_one_409(&stack, &stack.api(0), &stack.api(1)).await?;
    stack.stop().await
}

/// The first call is held at its commit, so that the second one meets it there.
async fn one_winner_and_one_409(stack: &Stack, one: &str, other: &str) -> Result<()> {
    let (client, key) = (Client::default(), Uuid::new_v4());
    let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;

    let overlapping = async {
        gate.wait_for_blocked(1).await?;
        let second = client.charge(other, key, 4900).await?;
        gate.release().await?;
        Ok::<_, anyhow::Error>(second)
    };
    let (first, second) = tokio::join!(client.charge(one, key, 4900), overlapping);
    let (first, second) = (first?, second?);
    let third = client.charge(other, key, 4900).await?;

    assert_eq!(first.status, 201);
    assert_eq!((second.status, second.problem().as_str()), (409, "request-in-progress"));
    ensure!(second.header("retry-after").parse::<u32>().is_ok(), "no Retry-After with 409");
    assert_eq!((third.status, third.header("idempotent-replayed")), (201, "true"));
    assert_eq!(third.body, first.body);
    assert_eq!(rows(stack).await?, Rows { charges: 1, events: 1, keys: 1 });
    Ok(())
}

async fn another_amount_while_the_first_call_runs_gets_422_at_every_process(
    context: &Context,
) -> Result<()> {
    let stack = context.stack(TWO_APIS).await?;
    let (client, key) = (Client::default(), Uuid::new_v4());
    let (one, other) = (stack.api(0), stack.api(1));
    let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;

    let overlapping = async {
        gate.wait_for_blocked(1).await?;
        let here = client.charge(&one, key, 1).await?;
        let there = client.charge(&other, key, 1).await?;
        gate.release().await?;
        Ok::<_, anyhow::Error>((here, there))
    };
    let (first, refused) = tokio::join!(client.charge(&one, key, 4900), overlapping);
    let (here, there) = refused?;

    assert_eq!(first?.status, 201);
    assert_eq!((here.status, there.status), (422, 422));
    assert_eq!(rows(&stack).await?, Rows { charges: 1, events: 1, keys: 1 });
    stack.stop().await
}

async fn ten_parallel_calls_are_one_execution(context: &Context) -> Result<()> {
    let stack = context.stack(Shape { apis: 2, ..Shape::ONE }).await?;
    let (key, answers) = (Uuid::new_v4(), Answers::default());
    // A client each, so that no call waits behind another one's connection.
    let clients: Vec<Client> = (0..10).map(|_| Client::default()).collect();
    let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;

    let calls = clients.iter().enumerate().map(|(number, client)| {
        let api = stack.api(number % 2);
        async move { client.charge(&api, key, 4900).await }
    });
    let release = async {
        gate.wait_for_blocked(1).await?;
        // The nine others are turned away while the winner is held: none of them can be late.
        let refused = async |api: usize| {
            let labels = [("outcome", "in_flight")];
            stack.apis[api].metric("charge_api_idempotency_outcomes_total", &labels).await
        };
        eventually_true(SOON, "nine calls are refused", async || {
            Ok(refused(0).await? + refused(1).await? >= 9.0)
        })
        .await?;
        gate.release().await
    };
    let (calls, released) = tokio::join!(join_all(calls), release);
    released?;
    let calls: Vec<Answer> = calls.into_iter().collect::<Result<_>>()?;
    // One after another: side by side they would be each other's 409.
    let mut again = Vec::new();
    for client in &clients {
        again.push(client.charge(&stack.api(0), key, 4900).await?);
    }

    let count = |status: u16| calls.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201), count(409)), (1, 9));
    for answer in calls.iter().chain(&again) {
        answers.note(key, 4900, answer);
    }
    ensure!(again.iter().all(|answer| answer.header("idempotent-replayed") == "true"));
    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), (1, 1, 1));
    stack.stop().await
}

async fn a_client_that_leaves_before_the_answer_is_charged_once(context: &Context) -> Result<()> {
    let stack = context.stack(Shape::ONE).await?;
    let (client, answers) = (Client::default(), Answers::default());
    let address = stack.apis[0].http().context("an API has a public port")?;

    for (amount, parting) in [(100, Parting::Reset), (200, Parting::Close)] {
        let key = Uuid::new_v4();
        let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(&charge_request(key, amount)).await?;
        gate.wait_for_blocked(1).await?;
        leave(stream, parting).await?;
        gate.release().await?;

        let apis = [stack.api(0)];
        let heard = |answer: &Result<Answer>| {
            if let Ok(answer) = answer {
                answers.note(key, amount, answer);
            }
        };
        let answer = client.insist(&apis, 0, (key, amount), heard).await?;
        assert_eq!(answer.header("idempotent-replayed"), "true", "the lost call had been done");
    }

    let verdict = context.settle(&stack.wiring, &answers).await?;
    assert_eq!((verdict.charges, verdict.records, verdict.receipts), (2, 2, 2));
    stack.stop().await
}

async fn a_process_killed_with_a_charge_in_it_leaves_all_of_it_or_nothing(
    context: &Context,
) -> Result<()> {
    let mut stack = context.stack(TWO_APIS).await?;
    let (client, key) = (Client::default(), Uuid::new_v4());
    let (doomed, other) = (stack.api(0), stack.api(1));
    let gate = Hold::gate(&stack.wiring.database_url, "charges", When::Commit).await?;

    let call = async { client.charge(&doomed, key, 4900).await };
    let kill = async {
        gate.wait_for_blocked(1).await?;
        stack.apis[0].kill()?;
        gate.terminate_blocked().await?;
        gate.release().await
    };
    let (lost, killed) = tokio::join!(call, kill);
    killed?;
    ensure!(lost.is_err(), "a killed process has answered: {lost:?}");
    assert_eq!(rows(&stack).await?, Rows { charges: 0, events: 0, keys: 0 });

    let answer = client.insist(&[other], 0, (key, 4900), |_| {}).await?;
    assert_eq!(answer.header("idempotent-replayed"), "false");
    assert_eq!(rows(&stack).await?, Rows { charges: 1, events: 1, keys: 1 });
    stack.stop().await
}

/// What a call has left behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Rows {
    pub charges: i64,
    pub events: i64,
    pub keys: i64,
}

pub async fn rows(stack: &Stack) -> Result<Rows> {
    let client = connect(&stack.wiring.database_url.parse()?).await?;
    let sql = "SELECT (SELECT count(*) FROM charges), (SELECT count(*) FROM outbox),
                      (SELECT count(*) FROM idempotency_keys)";
    let row = client.query_one(sql, &[]).await?;
    Ok(Rows { charges: row.get(0), events: row.get(1), keys: row.get(2) })
}
