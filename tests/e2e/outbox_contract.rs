//! docs/OUTBOX.md, as a foreign service takes it: its statements by psql, and what Kafka has then.

use std::collections::HashMap;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use harness::checkout;
use harness::eventually::{SOON, eventually_true};
use harness::postgres::{connect, find_binaries};
use harness::stack::{Shape, Stack};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::context::{Context, tests};

tests![the_statements_of_the_document_run_in_psql_and_their_events_are_in_kafka_as_it_says,];

/// The code of the document that is for this role, in its order.
fn statements(role: &str) -> Result<Vec<String>> {
    let document = std::fs::read_to_string(checkout::root()?.join("docs/OUTBOX.md"))?;
    let blocks = document.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let first_line = format!("-- as {role}\n");
    Ok(blocks.filter(|block| block.starts_with(&first_line)).map(str::to_owned).collect())
}

/// Runs it as psql would for a login of the role; returns the rows, columns parted by `|`.
async fn psql(url: &str, role: &str, sql: &str) -> Result<String> {
    let mut child = Command::new(find_binaries()?.join("psql"))
        .args([
            "--no-psqlrc",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "-v",
            "ON_ERROR_STOP=1",
            url,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("psql")?;
    let mut stdin = child.stdin.take().context("invariant: piped")?;
    stdin.write_all(format!("SET ROLE {role};\n{sql}").as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{role}: {sql}\n{complaint}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn the_statements_of_the_document_run_in_psql_and_their_events_are_in_kafka_as_it_says(
    context: &Context,
) -> Result<()> {
    let wiring = context.wiring().await?;
    let url = wiring.database_url.clone();
    let client = connect(&url.parse()?).await?;
    let own_table = "CREATE TABLE invoices (id text, state text, version bigint);
         GRANT SELECT, UPDATE ON invoices TO oncebox_writer;
         INSERT INTO invoices VALUES ('invoice-17', 'sent', 1)";
    client.batch_execute(own_table).await?;

    let writes = statements("oncebox_writer")?;
    ensure!(writes.len() == 2, "the document has {} statements for a writer", writes.len());
    // The one with an id may run again.
    for sql in writes.iter().chain(&writes[1..]) {
        psql(&url, "oncebox_writer", sql).await?;
    }
    let stack = Stack::start(wiring, Shape { relays: 1, apis: 0, consumers: 0 }).await?;
    let look = statements("oncebox_readonly")?.join("\n");
    let topic = context.topic(&stack.wiring);
    eventually_true(SOON, "the document's own look at the row says published", async || {
        let row = psql(&url, "oncebox_readonly", &look).await?;
        Ok(row.contains(&format!("|{}|", topic.name)))
    })
    .await?;
    eventually_true(SOON, "both are published", async || Ok(topic.read_all().await?.len() == 2))
        .await?;

    let records: HashMap<_, _> =
        topic.read_all().await?.into_iter().map(|record| (record.key.clone(), record)).collect();
    let paid = &records["invoice-17"];
    assert_eq!(paid.value, br#"{"invoice":"invoice-17","paidCents":4900}"#);
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_type", "InvoicePaid"),
        ("ce_subject", "invoice-17"),
        ("ce_sequence", "2"),
        ("ce_tenantid", "default"),
        ("content-type", "application/json"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ] {
        assert_eq!(paid.header(name), value, "{name}");
    }
    let sent = &records["invoice-18"];
    assert_eq!(sent.value, [0x0a, 0x0b]);
    assert_eq!(sent.event_id(), "0198d1c2-7a10-7c3e-8a55-0d6f4b1e9a01");
    assert_eq!((sent.header("ce_tenantid"), sent.header("ce_sequence")), ("acme", ""));
    assert_eq!(sent.header("content-type"), "application/x-protobuf");
    stack.stop().await
}
