//! `oncebox outbox verify` over a real topic: its times, and the part that its retention has deleted.

use anyhow::{Context as _, Result, ensure};
use harness::checkout;
use harness::client::Client;
use harness::eventually::{SOON, eventually_true};
use harness::postgres::connect;
use harness::stack::{Shape, Stack};
use serde_json::Value;
use tokio::process::Command;
use uuid::Uuid;

use crate::context::{Context, tests};

tests![a_topic_is_proven_by_its_times_and_as_far_back_as_it_goes];

/// Its answer, with further variables in its environment.
pub async fn verify(stack: &Stack, more: &[(String, String)], arguments: &[&str]) -> Result<Value> {
    let wiring = &stack.wiring;
    let output = Command::new(checkout::binary("oncebox")?)
        .args(["outbox", "verify", "--json", "--topic", &wiring.topic])
        .args(arguments)
        .env_clear()
        .env("DATABASE_URL", &wiring.database_url)
        .env("KAFKA_BROKERS", &wiring.kafka_brokers)
        .envs(more.iter().cloned())
        .kill_on_drop(true)
        .output()
        .await?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}{complaint}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).context("the answer")
}

async fn a_topic_is_proven_by_its_times_and_as_far_back_as_it_goes(
    context: &Context,
) -> Result<()> {
    let stack = context.stack(Shape { apis: 1, relays: 1, consumers: 0 }).await?;
    let database = connect(&stack.wiring.database_url.parse()?).await?;
    let client = Client::default();
    let charge = async |count: usize| {
        for _ in 0..count {
            let answer = client.charge(&stack.api(0), Uuid::new_v4(), 4900).await?;
            ensure!(answer.status == 201, "answered {}", answer.status);
        }
        let pending = "SELECT count(*) FROM outbox WHERE published_at IS NULL";
        eventually_true(SOON, "all is published", async || {
            Ok(database.query_one(pending, &[]).await?.get::<_, i64>(0) == 0)
        })
        .await
    };
    charge(20).await?;
    let between =
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let between: String = database.query_one(between, &[]).await?.get(0);
    charge(10).await?;

    for (arguments, expected) in
        [(&[][..], 30), (&["--to", &between][..], 20), (&["--from", &between][..], 10)]
    {
        let report = verify(&stack, &[], arguments).await?;
        let found = (report["records"].as_i64(), report["rowsProven"].as_i64());
        assert_eq!(found, (Some(expected), Some(expected)), "{arguments:?}: {report}");
        assert_eq!(report["topicProvableSince"], Value::Null);
    }

    let gone =
        "SELECT count(*), max(published_offset) + 1 FROM outbox WHERE published_partition = 0";
    let row = database.query_one(gone, &[]).await?;
    let (gone, offset): (i64, i64) = (row.get(0), row.get(1));
    context.topic(&stack.wiring).delete_before(0, offset).await?;
    let report = verify(&stack, &[], &[]).await?;
    assert_eq!(report["rowsBeforeTheTopic"].as_i64(), Some(gone), "{report}");
    assert_eq!(report["rowsProven"].as_i64(), Some(30 - gone), "{report}");
    ensure!(report["topicProvableSince"].is_string(), "{report}");
    stack.stop().await
}
