//! `oncebox outbox`: see what waits, and let it go, hold it, drop it or send it once more.

mod change;
mod shown;
mod verify;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use store::outbox::operate::{self, Entry, Filter, State};
use store::outbox::relay;
use store::{Connection, Pool};
use uuid::Uuid;

use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::table::pairs;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// How much waits, since when, and who relays it.
    Status(StatusArguments),
    /// Rows in one state.
    List(ListArguments),
    /// Everything about one row.
    Show(ShowArguments),
    /// Publish parked rows after all, and what waits behind them, in order.
    Retry(change::Retry),
    /// Keep pending rows from being published, and the later rows of their aggregates with them.
    Park(change::Park),
    /// Never publish parked rows: they move to outbox_discarded, and what waits behind them goes on.
    Discard(change::Discard),
    /// Publish published rows once more: same id, a header `replay`.
    Replay(change::Replay),
    /// Prove that every published row is in Kafka, and everything in Kafka in the outbox.
    Verify(verify::Arguments),
}

#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Listed {
    Pending,
    Parked,
    Published,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    #[arg(long, value_enum, default_value = "pending")]
    state: Listed,
    #[command(flatten)]
    filter: FilterArguments,
    /// Most rows to show.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    format: Format,
}

/// Which rows. Times are RFC 3339, of publishing for published rows and of writing for the others.
#[derive(Debug, Clone, Args)]
struct FilterArguments {
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long, value_name = "ID")]
    aggregate: Option<String>,
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// From this time on.
    #[arg(long, value_name = "TIME")]
    from: Option<jiff::Timestamp>,
    /// Before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<jiff::Timestamp>,
}

impl FilterArguments {
    fn filter(&self) -> Filter {
        let Self { tenant, aggregate, event_type, from, to } = self.clone();
        Filter { tenant, aggregate, event_type, from, to }
    }

    fn json(&self) -> serde_json::Value {
        let Self { tenant, aggregate, event_type, from, to } = self;
        json!({ "tenant": tenant, "aggregate": aggregate, "eventType": event_type, "from": from, "to": to })
    }
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    id: Uuid,
    #[arg(long, default_value = "default")]
    tenant: String,
    /// Show the payload too. It may hold what is not for every eye.
    #[arg(long)]
    payload: bool,
    #[command(flatten)]
    format: Format,
}

pub async fn run(settings: &Settings, verb: &Verb) -> Result<Answer, Failure> {
    let pool = Pool::new(&settings.database, "oncebox")?;
    match verb {
        Verb::Status(arguments) => status(&pool.get().await?, arguments).await,
        Verb::List(arguments) => list(&pool.get().await?, arguments).await,
        Verb::Show(arguments) => show(&pool.get().await?, arguments).await,
        Verb::Retry(arguments) => change::retry(settings, &pool, arguments).await,
        Verb::Park(arguments) => change::park(settings, &pool, arguments).await,
        Verb::Discard(arguments) => change::discard(settings, &pool, arguments).await,
        Verb::Replay(arguments) => change::replay(settings, &pool, arguments).await,
        Verb::Verify(arguments) => verify::run(settings, &pool, arguments).await,
    }
}

async fn status(connection: &Connection, arguments: &StatusArguments) -> Result<Answer, Failure> {
    let backlog = relay::backlog(connection).await?;
    let relays = operate::relays(connection).await?;
    let snapshot_age = relay::oldest_xmin_age(connection).await?;
    let counted = |count: i64| match count >= relay::COUNT_MAX {
        true => format!("{} or more", relay::COUNT_MAX - 1),
        false => count.to_string(),
    };
    let age = backlog.oldest_pending_age;
    let json = json!({
        "pending": backlog.pending,
        "countsEndAt": relay::COUNT_MAX,
        "oldestPendingAgeSeconds": age.as_secs_f64(),
        "parked": backlog.parked,
        "relaysAlive": relays.alive,
        "buckets": relays.buckets,
        "bucketsFree": relays.buckets_free,
        "oldestSnapshotAgeTransactions": snapshot_age,
    });
    Ok(Answer::new(arguments.format, &json, || {
        pairs(&[
            ("pending", counted(backlog.pending)),
            ("oldest pending", format!("{:.1} s", age.as_secs_f64())),
            ("parked", counted(backlog.parked)),
            ("relays alive", relays.alive.to_string()),
            ("buckets without a relay", format!("{} of {}", relays.buckets_free, relays.buckets)),
            ("oldest snapshot", format!("{snapshot_age} transactions ago")),
        ])
    }))
}

async fn list(connection: &Connection, arguments: &ListArguments) -> Result<Answer, Failure> {
    let state = match arguments.state {
        Listed::Pending => State::Pending,
        Listed::Parked => State::Parked,
        Listed::Published => State::Published,
    };
    let filter = arguments.filter.filter();
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let mut rows = operate::list(connection, state, &filter, limit + 1).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let json = json!({ "rows": shown::json(&rows), "more": more });
    Ok(Answer::new(arguments.format, &json, || {
        let more = if more { "there are more: raise --limit\n" } else { "" };
        format!("{}{more}", shown::rows(&rows))
    }))
}

async fn show(connection: &Connection, arguments: &ShowArguments) -> Result<Answer, Failure> {
    let found = operate::find(connection, &arguments.tenant, &[arguments.id]).await?;
    let Some(row) = found.first() else { return Ok(not_there(arguments.format)) };
    let payload = match arguments.payload {
        true => operate::payload(connection, &arguments.tenant, arguments.id).await?,
        false => None,
    };
    Ok(shown::whole(arguments.format, row, payload.as_deref()))
}

fn not_there(format: Format) -> Answer {
    let text = "no such row: it may have another --tenant, or be discarded or gone by retention";
    Answer::new(format, &json!({ "row": null }), || text.into()).no_if(true)
}

fn buckets(rows: &[Entry]) -> Vec<i16> {
    let mut buckets: Vec<i16> = rows.iter().map(|row| row.bucket).collect();
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}
