//! `stack demo`: real charges through the whole path while processes are killed, then the ledger.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures_util::future::try_join_all;
use harness::answers::Answers;
use harness::checkout;
use harness::eventually::{SOON, eventually_true};
use harness::hold::{Hold, When};
use harness::ledger::{self, Verdict};
use harness::postgres::connect;
use harness::stack::Shape;

use crate::clients::{Load, Tally};
use crate::signals::Signals;
use crate::whole::{Data, Whole};

/// 8 × 300 charges with a pause after each are about half a minute.
const CLIENTS: usize = 8;
const CHARGES_PER_CLIENT: usize = 300;
const PAUSE: Duration = Duration::from_millis(70);
/// How often a line of progress is printed.
const PROGRESS: Duration = Duration::from_secs(2);
/// How long a killed process stays away: long enough for the others to feel it.
const AWAY: Duration = Duration::from_secs(3);
/// For the backlog that is left when the clients are done; a dead relay's leases end meanwhile.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);

#[derive(Args)]
pub struct Arguments {
    /// End with exit code 0 or 1 by the verdict instead of waiting for Ctrl-C
    #[arg(long)]
    check: bool,
}

#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let logs = checkout::root()?.join(".stack/demo").join(std::process::id().to_string());
    println!("Starting PostgreSQL, Apache Kafka, 2 APIs, 2 relays and 2 consumers …");
    let verdict = Cell::new(None);
    let run = async {
        let mut whole = Whole::start(Shape::TWO, 1, &logs, Data::Apart).await?;
        for line in &whole.servers.chosen {
            println!("  {line}");
        }
        verdict.set(Some(show(&mut whole).await?));
        if !arguments.check {
            print_urls(&whole, &logs);
            std::future::pending::<()>().await;
        }
        whole.stop().await
    };
    tokio::select! {
        ended = run => ended.with_context(|| format!("logs are in {}", logs.display()))?,
        // Dropping the run stops everything.
        signal = signals.next() => {
            if verdict.get().is_none() {
                bail!("{signal} before the verdict; logs are in {}", logs.display());
            }
        }
    }
    if verdict.get() != Some(true) {
        println!("Logs are in {}", logs.display());
        return Ok(ExitCode::FAILURE);
    }
    std::fs::remove_dir_all(&logs)?;
    Ok(ExitCode::SUCCESS)
}

/// Load, kills, drain, verdict.
#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
async fn show(whole: &mut Whole) -> Result<bool> {
    let (answers, tally) = (Answers::default(), Tally::default());
    let apis = (0..whole.stack.apis.len()).map(|index| whole.stack.api(index)).collect();
    let load = Load { apis, answers: &answers, tally: &tally };
    let total = CLIENTS * CHARGES_PER_CLIENT;
    let begun = Instant::now();
    println!(
        "{CLIENTS} clients charge {total} times; answers get lost, and everything is asked again"
    );

    let clients = (0..CLIENTS).map(|number| load.client(number, CHARGES_PER_CLIENT, PAUSE));
    let url = whole.database_url().to_owned();
    let work = async { tokio::try_join!(try_join_all(clients), kills(whole, &answers, total)) };
    tokio::select! {
        done = work => { done?; }
        never = progress(&url, &answers, begun) => never?,
    }
    ensure!(answers.keys() == total, "{} of {total} charges are acknowledged", answers.keys());
    println!("  All charges are acknowledged. Waiting for the last events …");
    ledger::drained(&url, DRAIN_LIMIT).await?;
    let verdict = ledger::check(&url, &whole.topic.read_all().await?, &answers).await?;
    print_verdict(&verdict, &answers, &tally, begun.elapsed());
    Ok(verdict.passed())
}

/// One relay and one API die in the middle of their work and come back.
#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
async fn kills(whole: &mut Whole, answers: &Answers, total: usize) -> Result<()> {
    let acknowledged = async |part: usize| {
        let what = format!("{part} charges are acknowledged");
        eventually_true(DRAIN_LIMIT, &what, async || Ok(answers.keys() >= part)).await
    };
    let stack = &mut whole.stack;

    acknowledged(total / 4).await?;
    // Both relays are caught after Kafka's acknowledgement and before the mark in the outbox.
    let gate = Hold::gate(&stack.wiring.database_url, "outbox", When::BeforeUpdate).await?;
    let caught = gate.wait_for_blocked(stack.relays.len()).await?;
    stack.relays[0].kill()?;
    println!(
        "  SIGKILL outbox-relay-1, between Kafka's acknowledgement and the mark in the outbox"
    );
    // Its mark must die with it: the server notices within a second that the client is gone.
    eventually_true(SOON, "the dead relay's mark is gone", async || {
        let still = gate.blocked().await?;
        Ok(!caught.iter().all(|one| still.iter().any(|other| other.pid == one.pid)))
    })
    .await?;
    gate.release().await?;
    tokio::time::sleep(AWAY).await;
    stack.relays[0].start_again().await?;
    println!("  outbox-relay-1 is started again");

    acknowledged(total / 2).await?;
    stack.apis[0].kill()?;
    println!("  SIGKILL charge-api-1, with requests in it");
    tokio::time::sleep(AWAY).await;
    stack.apis[0].start_again().await?;
    println!("  charge-api-1 is started again");
    Ok(())
}

/// A line now and then, for ever.
#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
async fn progress(url: &str, answers: &Answers, begun: Instant) -> Result<()> {
    let client = connect(&url.parse()?).await?;
    let sql = "SELECT (SELECT count(*) FROM outbox WHERE published_at IS NULL),
                      (SELECT count(*) FROM receipts)";
    loop {
        tokio::time::sleep(PROGRESS).await;
        let row = client.query_one(sql, &[]).await?;
        let (pending, receipts): (i64, i64) = (row.get(0), row.get(1));
        let (seconds, keys) = (begun.elapsed().as_secs(), answers.keys());
        println!(
            "  {seconds:3} s  {keys:5} acknowledged  {pending:5} to publish  {receipts:5} receipts"
        );
    }
}

#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
fn print_verdict(verdict: &Verdict, answers: &Answers, tally: &Tally, took: Duration) {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let replays: u64 = answers.all().values().map(|heard| heard.replays).sum();
    println!(
        "\n{} charges, {} events, {} receipts in {} s; {} requests: {} answers lost, {} retries,",
        verdict.charges,
        verdict.events,
        verdict.receipts,
        took.as_secs(),
        read(&tally.requests),
        read(&tally.lost),
        read(&tally.retries),
    );
    println!(
        "{replays} replays, {} told to wait (409), {} with another amount refused (422);",
        read(&tally.in_flight),
        read(&tally.refused),
    );
    println!(
        "1 relay and 1 API killed; {} duplicate(s) in Kafka, none of them had an effect.\n",
        verdict.duplicates(),
    );
    for check in &verdict.checks {
        println!("{} {}", if check.failures.is_empty() { '✓' } else { '✗' }, check.sentence);
    }
    let passed = verdict.passed();
    println!("{}", if passed { "PASSED" } else { "FAILED" });
    if let Err(failures) = verdict.require() {
        println!("{failures}");
    }
}

#[expect(clippy::print_stdout, reason = "a command line speaks to a person")]
fn print_urls(whole: &Whole, logs: &Path) {
    println!();
    for service in whole.stack.services() {
        let url = service.url().map_or_else(String::new, |url| format!("{url}/charges   "));
        println!("{:<18} {url}{}/metrics", service.name(), service.admin_url());
    }
    println!("PostgreSQL         {}", whole.database_url());
    println!("logs               {}", logs.display());
    println!("Everything is still running. Ctrl-C stops it.");
}
