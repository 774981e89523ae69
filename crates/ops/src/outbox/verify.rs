//! `oncebox outbox verify`: is every published row in the topic, and everything in the topic in the
//! outbox?
//!
//! The topic is read once, in the order of offsets, and each record looked up by its id. A bit an
//! offset remembers what was found in its place; then the published rows are read once and held
//! against those bits. So memory grows by a bit a record, and no order of the two sides is needed.
//! Nothing is locked and no snapshot is held: what moves meanwhile is left to the next run.

mod account;
mod seen;

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Map, json};
use store::outbox::retention;
use store::outbox::verify as rows;
use store::{Connection, Pool, reconciliation};

use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::kafka::Topic;
use crate::outbox::verify::account::{Account, Kind, NAMED_MAX, OFFSETS_MAX};
use crate::outbox::verify::seen::Seen;
use crate::settings::Settings;
use crate::table::{pairs, table};

/// Records that are looked up by one statement.
const BATCH: usize = 1_000;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct Arguments {
    /// The topic; that of kafka.topic when it is not given.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Records from this time on (RFC 3339).
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Records before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    #[command(flatten)]
    format: Format,
}

pub async fn run(
    settings: &Settings,
    pool: &Pool,
    arguments: &Arguments,
) -> Result<Answer, Failure> {
    let name = arguments.topic.as_deref().unwrap_or(&settings.kafka.topic);
    let mut topic = Topic::new(&settings.kafka, name)?;
    let connection = pool.get().await?;
    // What was published before this is below the ends that Kafka names after it.
    let began = reconciliation::now(&connection).await?;
    let ranges = topic.seek(arguments.from, arguments.to)?;
    let mut account = Account::new(name, began, ranges).map_err(|offsets| {
        Failure::Refused(format!(
            "{offsets} records are too many for one run, which takes {OFFSETS_MAX}: \
             take a part of them with --from and --to"
        ))
    })?;
    read_topic(&mut topic, &connection, &mut account).await?;
    read_outbox(&connection, arguments.from, &mut account).await?;
    let removed_before = retention::removed_before(&connection).await?;
    Ok(answer(arguments, &account, removed_before))
}

async fn read_topic(
    topic: &mut Topic,
    connection: &Connection,
    account: &mut Account,
) -> Result<(), Failure> {
    let mut progress = Progress::new("records read", Some(account.offsets));
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let end = match topic.next().await? {
            Some(message) => {
                batch.push(Seen::of(&message));
                false
            }
            None => true,
        };
        if end || batch.len() == BATCH {
            judge(connection, &batch, account).await?;
            progress.add(batch.len());
            batch.clear();
        }
        if account.is_overfull() {
            return Err(Failure::Refused(
                "too many records are of rows that are not marked yet: run it again when \
                 `oncebox outbox status` says that little is pending"
                    .into(),
            ));
        }
        if end {
            return Ok(());
        }
    }
}

async fn judge(
    connection: &Connection,
    batch: &[Seen],
    account: &mut Account,
) -> Result<(), Failure> {
    let readable: Vec<&Seen> = batch.iter().filter(|seen| seen.event.is_some()).collect();
    let (tenants, ids): (Vec<_>, Vec<_>) = readable
        .iter()
        .filter_map(|seen| seen.event.as_ref())
        .map(|(t, id)| (t.as_str(), *id))
        .unzip();
    let known = rows::look_up(connection, &tenants, &ids).await?;
    // Asked afterwards: retention goes on meanwhile.
    let removed_before = match known.contains(&rows::Known::Nothing) {
        true => retention::removed_before(connection).await?,
        false => None,
    };
    for (seen, known) in readable.iter().zip(known) {
        account.record(seen, known, removed_before);
    }
    batch.iter().filter(|seen| seen.event.is_none()).for_each(|seen| account.unreadable(seen));
    Ok(())
}

async fn read_outbox(
    connection: &Connection,
    from: Option<Timestamp>,
    account: &mut Account,
) -> Result<(), Failure> {
    let mut progress = Progress::new("published rows held against them", None);
    // A row is marked after its record was made, by another clock.
    let mut after = from.and_then(|from| from.checked_sub(retention::CLOCKS_APART).ok());
    loop {
        let page = rows::published(connection, after, account.began).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.at);
        page.iter().for_each(|row| account.published(row));
        progress.add(page.len());
    }
}

/// Lines on stderr while it takes long.
struct Progress {
    what: &'static str,
    of: Option<u64>,
    done: usize,
    said: Instant,
}

impl Progress {
    fn new(what: &'static str, of: Option<u64>) -> Self {
        Self { what, of, done: 0, said: Instant::now() }
    }

    fn add(&mut self, count: usize) {
        self.done += count;
        if self.said.elapsed() >= PROGRESS_INTERVAL {
            self.said = Instant::now();
            let of = self.of.map_or(String::new(), |of| format!(" of about {of}"));
            let _ = writeln!(std::io::stderr(), "verify: {}{of} {}", self.done, self.what);
        }
    }
}

fn answer(arguments: &Arguments, account: &Account, removed_before: Option<Timestamp>) -> Answer {
    let is_whole = account.differences() == 0;
    let counts = Kind::ALL.map(|kind| (kind, account.count(kind)));
    let json = json!({
        "topic": account.topic,
        "from": arguments.from,
        "to": arguments.to,
        "whole": is_whole,
        "records": account.records,
        "rowsProven": account.rows_proven,
        "copies": account.copies,
        "notYetMarked": account.unmarked,
        "ofDiscardedRows": account.discarded,
        "ofRemovedRows": account.removed,
        "rowsBeforeTheTopic": account.rows_before_topic,
        "topicProvableSince": account.topic_since,
        "outboxRemovedBefore": removed_before,
        "differences": counts.iter().map(|(kind, count)| (kind.as_label().to_owned(), json!(count)))
            .collect::<Map<_, _>>(),
        "named": account.named.iter().map(|it| json!({
            "kind": it.kind.as_label(), "tenant": it.tenant, "id": it.id,
            "partition": it.partition, "offset": it.offset,
        })).collect::<Vec<_>>(),
    });
    Answer::new(arguments.format, &json, || text(account, removed_before)).no_if(!is_whole)
}

fn text(account: &Account, removed_before: Option<Timestamp>) -> String {
    let mut text = pairs(&[
        ("topic", account.topic.clone()),
        ("records read", account.records.to_string()),
        ("published rows proven", account.rows_proven.to_string()),
        ("further copies", account.copies.to_string()),
        ("records of rows not marked yet", account.unmarked.to_string()),
        ("records of rows discarded later", account.discarded.to_string()),
    ]);
    if let Some(since) = account.topic_since {
        let rows = account.rows_before_topic;
        text.push_str(&format!(
            "the topic goes back to {since:.3} only: {rows} rows published before that cannot be proven\n"
        ));
    }
    if let Some(before) = removed_before {
        let records = account.removed;
        text.push_str(&format!(
            "the outbox goes back to {before:.3} only: {records} records from before that have no row any more\n"
        ));
    }
    if account.differences() == 0 {
        text.push_str("the topic and the outbox agree\n");
        return text;
    }
    for kind in Kind::ALL.into_iter().filter(|kind| account.count(*kind) > 0) {
        text.push_str(&format!("{} × {}\n", account.count(kind), kind.explained()));
    }
    let rows = account.named.iter().map(|it| {
        let id = it.id.map_or("-".into(), |id| id.to_string());
        let tenant = it.tenant.clone().unwrap_or("-".into());
        [it.kind.as_label().into(), tenant, id, it.partition.to_string(), it.offset.to_string()]
    });
    text.push_str(&table(
        ["difference", "tenant", "id", "partition", "offset"],
        &rows.collect::<Vec<_>>(),
    ));
    if account.named.len() == NAMED_MAX {
        text.push_str("only the first are named\n");
    }
    text
}
