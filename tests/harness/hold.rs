//! Forcing what tests would otherwise have to hope for: a statement of a service that waits at a
//! chosen place for as long as the test wants, or that fails there.
//!
//! All of it is done in the database, to the binaries as they are shipped.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_postgres::{Client, Row};

use crate::eventually::{SOON, eventually};
use crate::postgres::connect;

/// Where, in the life of a row, a trigger stands.
#[derive(Clone, Copy, Debug)]
pub enum When {
    BeforeInsert,
    BeforeUpdate,
    /// Of this column, by whoever names it.
    BeforeUpdateOf(&'static str),
    /// When the transaction that inserted the row commits.
    Commit,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeInsert => f.write_str("before_insert"),
            Self::BeforeUpdate => f.write_str("before_update"),
            Self::BeforeUpdateOf(column) => write!(f, "before_update_of_{column}"),
            Self::Commit => f.write_str("commit"),
        }
    }
}

/// A backend that waits for a hold.
#[derive(Clone, Debug)]
pub struct Blocked {
    pub pid: i32,
    /// For how long, by the server's clock.
    pub since: Duration,
}

/// A statement may be a short first try that gives up and comes again in another form: the API gives
/// a whole batch 100 ms. One that waits longer than this waits until it is let go.
const TO_STAY: Duration = Duration::from_millis(500);

/// An open transaction of the test that others wait for. Dropped = released.
pub struct Hold {
    holder: Client,
    observer: Client,
    pid: i32,
}

impl Hold {
    /// Locks the rows that this `SELECT … FOR UPDATE` finds.
    pub async fn rows(url: &str, select_for_update: &str) -> Result<Self> {
        let hold = Self::begin(url).await?;
        let found = hold.holder.query(select_for_update, &[]).await?;
        anyhow::ensure!(!found.is_empty(), "no row to lock: {select_for_update}");
        Ok(hold)
    }

    /// Makes every statement wait that reaches a row of this table at this point.
    pub async fn gate(url: &str, table: &str, when: When) -> Result<Self> {
        let hold = Self::begin(url).await?;
        let lock = hold.pid;
        // Shared in the trigger: those that wait do not wait for each other.
        let body = format!("PERFORM pg_advisory_xact_lock_shared({GATES}, {lock});");
        create_trigger(&hold.observer, table, when, &format!("gate_{lock}"), &body).await?;
        let take = format!("SELECT pg_advisory_xact_lock({GATES}, {lock})");
        hold.holder.batch_execute(&take).await?;
        Ok(hold)
    }

    /// Who waits for it now.
    pub async fn blocked(&self) -> Result<Vec<Blocked>> {
        let sql = "SELECT pid, extract(epoch FROM clock_timestamp() - query_start)::float8
                   FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        let read = |row: &Row| Blocked {
            pid: row.get(0),
            since: Duration::try_from_secs_f64(row.get(1)).unwrap_or_default(),
        };
        Ok(self.observer.query(sql, &[&self.pid]).await?.iter().map(read).collect())
    }

    /// Waits until at least so many wait for it, and are there to stay.
    pub async fn wait_for_blocked(&self, count: usize) -> Result<Vec<Blocked>> {
        let what = format!("{count} statement(s) wait for the hold");
        eventually(SOON, &what, async || {
            let mut blocked = self.blocked().await?;
            blocked.retain(|one| one.since >= TO_STAY);
            Ok((blocked.len() >= count).then_some(blocked))
        })
        .await
    }

    /// Ends those that wait, so that their statements never happen: the server would otherwise
    /// finish the work of a client that was killed.
    pub async fn terminate_blocked(&self) -> Result<()> {
        for blocked in self.blocked().await? {
            self.observer.execute("SELECT pg_terminate_backend($1)", &[&blocked.pid]).await?;
        }
        eventually(SOON, "the blocked backends are gone", async || {
            Ok(self.blocked().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Lets them go on.
    pub async fn release(self) -> Result<()> {
        self.holder.batch_execute("ROLLBACK").await.context("releasing a hold")
    }

    async fn begin(url: &str) -> Result<Self> {
        let (holder, observer) = (connect(&url.parse()?).await?, connect(&url.parse()?).await?);
        holder.batch_execute("BEGIN").await?;
        let pid = holder.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        Ok(Self { holder, observer, pid })
    }
}

/// The first half of the advisory locks of gates; any number that nothing else uses.
const GATES: i32 = 0x6761_7465;

/// A table whose rows cannot pass a certain point: the statement, or the commit, fails.
pub struct Fault {
    client: Client,
    table: String,
    name: String,
}

impl Fault {
    pub async fn on(url: &str, table: &str, when: When) -> Result<Self> {
        let client = connect(&url.parse()?).await?;
        let name = format!("fault_{when}");
        create_trigger(&client, table, when, &name, "RAISE EXCEPTION 'a fault made by a test';")
            .await?;
        Ok(Self { client, table: table.to_owned(), name })
    }

    pub async fn remove(self) -> Result<()> {
        let sql = format!("DROP TRIGGER {} ON {}", self.name, self.table);
        self.client.batch_execute(&sql).await.context("removing a fault")
    }
}

async fn create_trigger(
    client: &Client,
    table: &str,
    when: When,
    name: &str,
    body: &str,
) -> Result<()> {
    let trigger = match when {
        When::BeforeInsert => format!("TRIGGER {name} BEFORE INSERT ON {table}"),
        When::BeforeUpdate => format!("TRIGGER {name} BEFORE UPDATE ON {table}"),
        When::BeforeUpdateOf(column) => {
            format!("TRIGGER {name} BEFORE UPDATE OF {column} ON {table}")
        }
        When::Commit => format!(
            "CONSTRAINT TRIGGER {name} AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"
        ),
    };
    let function = format!("{name}_{table}");
    let sql = format!(
        "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql
         AS $$ BEGIN {body} RETURN NEW; END $$;
         CREATE {trigger} FOR EACH ROW EXECUTE FUNCTION {function}()"
    );
    client.batch_execute(&sql).await.with_context(|| format!("a trigger on {table}"))
}
