//! Changes of the outbox: choose the rows, hold their buckets where order is at stake, change them
//! and record it, all in one transaction.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use store::audit::{self, Action};
use store::outbox::hold;
use store::outbox::operate::{self, Change, Entry, Filter, State};
use store::{Connection, Pool};
use uuid::Uuid;

use super::{FilterArguments, buckets, shown};
use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::operator::{Consent, Yes, action_id};
use crate::settings::Settings;

/// Most rows that one run changes: one transaction, well within `database.statement_timeout`.
const ROWS_MAX: usize = 10_000;
/// A relay's lease is seconds; one that is longer than this is no reason to keep an operator waiting.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// The database's clock decides when a lease has ended; ours only measures.
const MARGIN: Duration = Duration::from_millis(50);

/// Rows by their ids.
#[derive(Debug, Args)]
struct Ids {
    #[arg(required = true, num_args = 1..=1000)]
    ids: Vec<Uuid>,
    #[arg(long, default_value = "default")]
    tenant: String,
}

#[derive(Debug, Args)]
#[group(id = "which_rows", required = true, multiple = false, args = ["ids", "all"])]
pub struct Retry {
    #[arg(num_args = 1..=1000)]
    ids: Vec<Uuid>,
    /// Every parked row (that --aggregate, --event-type, --from and --to leave).
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: FilterArguments,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct Park {
    #[command(flatten)]
    ids: Ids,
    /// Why; shown as the row's last error.
    #[arg(long, default_value = "parked by an operator")]
    reason: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct Discard {
    #[command(flatten)]
    ids: Ids,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    format: Format,
}

/// At least one of --aggregate, --event-type, --from and --to.
#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    filter: FilterArguments,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    format: Format,
}

pub async fn retry(settings: &Settings, pool: &Pool, retry: &Retry) -> Result<Answer, Failure> {
    let connection = pool.get().await?;
    let rows = if retry.all {
        choose(&connection, State::Parked, &retry.filter.filter()).await?
    } else {
        let tenant = retry.filter.tenant.as_deref().unwrap_or("default");
        operate::find(&connection, tenant, &retry.ids).await?
    };
    let mut arguments = retry.filter.json();
    arguments["ids"] = json!(retry.ids);
    let plan = Plan { verb: "retry", change: Change::Retry, ordered: true, arguments, rows };
    plan.carry_out(settings, connection, &retry.consent, retry.format).await
}

pub async fn park(settings: &Settings, pool: &Pool, park: &Park) -> Result<Answer, Failure> {
    let connection = pool.get().await?;
    let Ids { ids, tenant } = &park.ids;
    let rows = operate::find(&connection, tenant, ids).await?;
    let arguments = json!({ "tenant": tenant, "ids": ids, "reason": park.reason });
    let change = Change::Park { why: &park.reason };
    // Nothing comes before anything else by it.
    let plan = Plan { verb: "park", change, ordered: false, arguments, rows };
    plan.carry_out(settings, connection, &park.consent, park.format).await
}

pub async fn discard(
    settings: &Settings,
    pool: &Pool,
    discard: &Discard,
) -> Result<Answer, Failure> {
    if !discard.consent.dry_run {
        discard.yes.or_refuse("a discarded event is never published")?;
    }
    let connection = pool.get().await?;
    let Ids { ids, tenant } = &discard.ids;
    let rows = operate::find(&connection, tenant, ids).await?;
    let arguments = json!({ "tenant": tenant, "ids": ids });
    let plan = Plan { verb: "discard", change: Change::Discard, ordered: true, arguments, rows };
    plan.carry_out(settings, connection, &discard.consent, discard.format).await
}

pub async fn replay(settings: &Settings, pool: &Pool, replay: &Replay) -> Result<Answer, Failure> {
    let filter = replay.filter.filter();
    let Filter { aggregate, event_type, from, to, .. } = &filter;
    if aggregate.is_none() && event_type.is_none() && from.is_none() && to.is_none() {
        let why = "give at least one of --aggregate, --event-type, --from and --to";
        return Err(Failure::Usage(why.into()));
    }
    if !replay.consent.dry_run {
        replay.yes.or_refuse("every consumer gets these events once more")?;
    }
    let connection = pool.get().await?;
    let rows = choose(&connection, State::Published, &filter).await?;
    // The value of the mark is the action's id, which is only known when it is carried out.
    let change = Change::Replay { mark: "" };
    let arguments = replay.filter.json();
    let plan = Plan { verb: "replay", change, ordered: true, arguments, rows };
    plan.carry_out(settings, connection, &replay.consent, replay.format).await
}

async fn choose(
    connection: &Connection,
    state: State,
    filter: &Filter,
) -> Result<Vec<Entry>, Failure> {
    let rows = operate::list(connection, state, filter, ROWS_MAX + 1).await?;
    if rows.len() > ROWS_MAX {
        return Err(Failure::Refused(format!(
            "more than {ROWS_MAX} rows match, and one run changes at most so many; \
             nothing was changed: narrow it with --from and --to, or --aggregate"
        )));
    }
    Ok(rows)
}

/// PostgreSQL quotes the whole row, payload and all.
fn explain(error: store::Error) -> Failure {
    if !error.is_check_violation() {
        return error.into();
    }
    Failure::Refused(
        "one of these rows breaks the contract of the outbox (docs/OUTBOX.md) and can never be \
         published; nothing was changed: take the others by their ids, and see its last error \
         with `oncebox outbox list`"
            .into(),
    )
}

/// What is to be done to which rows.
struct Plan<'a> {
    verb: &'static str,
    change: Change<'a>,
    /// Rows that relays have passed become pending: no relay may read meanwhile.
    ordered: bool,
    arguments: Value,
    rows: Vec<Entry>,
}

impl Plan<'_> {
    async fn carry_out(
        mut self,
        settings: &Settings,
        mut connection: Connection,
        consent: &Consent,
        format: Format,
    ) -> Result<Answer, Failure> {
        let state = self.change.of();
        self.rows.retain(|row| row.state() == state);
        let operator = consent.operator(settings)?;
        let changed = match (consent.dry_run, self.rows.as_slice()) {
            (true, _) | (false, []) => None,
            (false, _) if self.ordered => Some(self.holding(&mut connection, &operator).await?),
            (false, _) => Some(self.change(&mut connection, &operator, None).await?),
        };
        Ok(self.answer(format, changed))
    }

    async fn holding(&self, connection: &mut Connection, operator: &str) -> Result<u64, Failure> {
        let owner = action_id();
        let wait = hold::take(connection, owner, &buckets(&self.rows)).await?;
        let changed = if wait <= WAIT_MAX {
            tokio::time::sleep(wait + MARGIN).await;
            self.change(connection, operator, Some(owner)).await
        } else {
            Err(Failure::Refused(format!(
                "a relay has its lease for {} s more; nothing was changed: stop the relay, or lower \
                 relay.lease",
                wait.as_secs()
            )))
        };
        // Also after a failure: the relays need not wait for the hold to run out.
        let given_back = hold::give_back(connection, owner).await;
        let changed = changed?;
        given_back?;
        Ok(changed)
    }

    async fn change(
        &self,
        connection: &mut Connection,
        operator: &str,
        held_by: Option<Uuid>,
    ) -> Result<u64, Failure> {
        let id = action_id();
        let mark = id.to_string();
        let change = match self.change {
            Change::Replay { .. } => Change::Replay { mark: &mark },
            change => change,
        };
        let tx = connection.transaction().await?;
        if let Some(owner) = held_by
            && !hold::confirm(&tx, owner, &buckets(&self.rows)).await?
        {
            return Err(Failure::Refused(
                "another operator changes the same buckets; nothing was changed: run it again"
                    .into(),
            ));
        }
        let rows = operate::change(&tx, change, &self.rows).await.map_err(explain)?;
        let action = format!("outbox {}", self.verb);
        let action = Action { operator, action: &action, arguments: &self.arguments };
        audit::record(&tx, id, action, rows).await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// `changed` is `None` when nothing was tried.
    fn answer(&self, format: Format, changed: Option<u64>) -> Answer {
        let chosen = self.rows.len();
        let json = json!({
            "dryRun": changed.is_none() && chosen > 0,
            "changed": changed.unwrap_or(0),
            "rows": shown::json(&self.rows),
        });
        let state = match self.change.of() {
            State::Pending => "pending",
            State::Parked => "parked",
            State::Published => "published",
        };
        let verb = self.verb;
        Answer::new(format, &json, || match (chosen, changed) {
            (0, _) => format!("{verb}: none of these rows is {state}; nothing was changed"),
            (_, None) => format!("would {verb} {chosen} rows:\n{}", shown::rows(&self.rows)),
            (_, Some(rows)) => format!("{verb}: {rows} of {chosen} rows changed"),
        })
        .no_if(chosen == 0 || changed == Some(0))
    }
}
