//! The migration runner: brings a database to the schema that this binary was built with.
//!
//! Run by `migrate`, never by a service at its start. Many may run at once: one works, the others
//! wait and then find nothing to do.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::tls::{self, Misconfigured, Target};
use crate::{Connection, Error, Pool, Statement};

/// One file of `migrations/`, as it was when this binary was built.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub name: &'static str,
    pub sql: &'static str,
}

macro_rules! migrations {
    ($($name:literal),+ $(,)?) => {
        &[$(Migration { name: $name, sql: include_str!(concat!("../../../migrations/", $name)) }),+]
    };
}

/// All migrations in order; the first has version 1.
pub const MIGRATIONS: &[Migration] = migrations![
    "0001_charges.sql",
    "0002_idempotency_keys.sql",
    "0003_outbox.sql",
    "0004_inbox.sql",
    "0005_receipts.sql",
    "0006_dead_letters.sql",
    "0007_api_keys.sql",
    "0008_roles.sql",
    "0009_idempotency_keys_expiry.sql",
    "0010_operator_actions.sql",
    "0011_charge_record.sql",
    "0012_inbox_partitions.sql",
    "0013_outbox_contract.sql",
    "0014_outbox_contract_holds.sql",
    "0015_outbox_retention.sql",
    "0016_outbox_relays_standing_by.sql",
    "0017_dead_letter_publications.sql",
];

/// Runs a file's statements one by one outside a transaction, for what PostgreSQL refuses inside
/// one (CREATE INDEX CONCURRENTLY). Such a file can be cut off between its statements, so each of
/// them must be one that may run twice (IF NOT EXISTS).
const NO_TRANSACTION: &str = "-- no-transaction";

/// Any constant that nothing else locks: "oncebox" in ASCII.
const LOCK: i64 = 0x6f_6e_63_65_62_6f_78;

/// Long enough for a big index that another runner is building.
const LOCK_DEADLINE: Duration = Duration::from_secs(30 * 60);
const LOCK_POLL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("cannot tell which database is meant")]
    Target(#[from] Misconfigured),
    #[error("migration failed: {operation}")]
    Database {
        operation: &'static str,
        #[source]
        source: tokio_postgres::Error,
    },
    #[error("another migration has held the lock for 30 minutes; end it, then run this again")]
    Locked,
    #[error(
        "the database has migration {version} ({name}), which this binary does not know; \
         run a binary that is at least as new as the database"
    )]
    UnknownVersion { version: i32, name: String },
    #[error(
        "migrations/{name} was changed after it had been applied; \
         put it back as it was and write the change as a new migration"
    )]
    Changed { name: &'static str },
}

impl MigrateError {
    /// The database is away, or somebody holds what a migration needs: later it may work.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Database { source, .. } => crate::error::is_unavailable(source),
            Self::Locked => true,
            Self::Target(_) | Self::UnknownVersion { .. } | Self::Changed { .. } => false,
        }
    }
}

/// A migration that the database has.
#[derive(Debug, Clone)]
pub struct Applied {
    pub name: String,
    pub at: Timestamp,
}

/// How far a database is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub applied: Vec<Applied>,
    /// What [`run`] would apply.
    pub missing: Vec<&'static str>,
}

/// Looks without changing anything, and without waiting for a migration that runs.
///
/// # Errors
/// [`MigrateError`], as [`run`] would refuse the database.
pub async fn progress(database: impl Into<Target<'_>>) -> Result<Progress, MigrateError> {
    let (client, driver) = connect(database.into()).await?;
    let progress = read_progress(&client).await;
    drop(client);
    let _ = driver.await;
    progress
}

async fn read_progress(client: &Client) -> Result<Progress, MigrateError> {
    let is_there = client
        .query_one("SELECT to_regclass('schema_migrations') IS NOT NULL", &[])
        .await
        .map_err(failed("look for schema_migrations"))?;
    let mut applied = Vec::new();
    if is_there.get(0) {
        verify_applied(client, MIGRATIONS).await?;
        let times = "SELECT name, applied_at FROM schema_migrations ORDER BY version";
        let rows = client.query(times, &[]).await.map_err(failed("read schema_migrations"))?;
        applied.extend(rows.iter().map(|row| Applied { name: row.get(0), at: row.get(1) }));
    }
    let missing = MIGRATIONS.iter().skip(applied.len()).map(|migration| migration.name);
    Ok(Progress { missing: missing.collect(), applied })
}

/// Applies what is missing and returns its names.
///
/// # Errors
/// [`MigrateError`]. Whatever was applied before stays applied; running again goes on from there.
pub async fn run(database: impl Into<Target<'_>>) -> Result<Vec<&'static str>, MigrateError> {
    run_these(database, MIGRATIONS).await
}

/// [`run`] with other migrations than this binary's own.
///
/// # Errors
/// As [`run`].
pub async fn run_these(
    database: impl Into<Target<'_>>,
    migrations: &[Migration],
) -> Result<Vec<&'static str>, MigrateError> {
    // Not from the pool: the lock belongs to the session, and statements may take long.
    let (client, driver) = connect(database.into()).await?;
    let applied = apply_missing(&client, migrations).await;
    // The session ends with the client, and the lock with the session.
    drop(client);
    let _ = driver.await;
    applied
}

/// A session, and the task that drives it: it ends with the client.
async fn connect(target: Target<'_>) -> Result<(Client, JoinHandle<()>), MigrateError> {
    let tls::Server { mut config, connector } = tls::server(target)?;
    // IF NOT EXISTS tells of what it skips on every run but the first.
    config.application_name("oncebox migrate").options("-c client_min_messages=warning");
    let (client, connection) =
        config.connect(connector).await.map_err(failed("connect to the database"))?;
    let driver = async move {
        // Whatever ends the session ends a statement of it too, and that one says so.
        let _ended = connection.await;
    };
    Ok((client, tokio::spawn(driver)))
}

async fn apply_missing(
    client: &Client,
    migrations: &[Migration],
) -> Result<Vec<&'static str>, MigrateError> {
    lock(client).await?;
    // Rather give up than queue behind a long transaction with everybody else queueing behind us.
    execute(client, "SET lock_timeout = '10s'", "set lock_timeout").await?;
    execute(
        client,
        "CREATE TABLE IF NOT EXISTS schema_migrations (
             version    integer PRIMARY KEY,
             name       text NOT NULL,
             checksum   bytea NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
         )",
        "create schema_migrations",
    )
    .await?;
    let done = verify_applied(client, migrations).await?;
    let mut applied = Vec::new();
    for (version, migration) in (1_i32..).zip(migrations).skip(done) {
        tracing::info!(migration = migration.name, "applying");
        apply(client, version, migration).await?;
        applied.push(migration.name);
    }
    Ok(applied)
}

/// Tries the lock until it is free. Waiting inside the server would be a transaction that
/// CREATE INDEX CONCURRENTLY in turn waits for: a deadlock.
async fn lock(client: &Client) -> Result<(), MigrateError> {
    let attempts = LOCK_DEADLINE.as_millis() / LOCK_POLL.as_millis();
    for attempt in 0..attempts {
        let row = client
            .query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK])
            .await
            .map_err(failed("take the migration lock"))?;
        if row.get(0) {
            return Ok(());
        }
        if attempt == 0 {
            tracing::info!("another migration is running; waiting for it");
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
    Err(MigrateError::Locked)
}

/// How many of `migrations` are applied; refuses a database that they do not lead to.
async fn verify_applied(client: &Client, migrations: &[Migration]) -> Result<usize, MigrateError> {
    let rows = client
        .query("SELECT version, name, checksum FROM schema_migrations ORDER BY version", &[])
        .await
        .map_err(failed("read schema_migrations"))?;
    for (position, row) in rows.iter().enumerate() {
        let Some(migration) = migrations.get(position) else {
            return Err(MigrateError::UnknownVersion { version: row.get(0), name: row.get(1) });
        };
        if row.get::<_, &[u8]>(2) != checksum(migration) {
            return Err(MigrateError::Changed { name: migration.name });
        }
    }
    Ok(rows.len())
}

async fn apply(client: &Client, version: i32, migration: &Migration) -> Result<(), MigrateError> {
    let in_transaction = !migration.sql.starts_with(NO_TRANSACTION);
    if in_transaction {
        execute(client, "BEGIN", "begin a migration").await?;
        execute(client, migration.sql, migration.name).await?;
    } else {
        for statement in statements(migration.sql) {
            execute(client, statement, migration.name).await?;
        }
    }
    client
        .execute(
            "INSERT INTO schema_migrations (version, name, checksum) VALUES ($1, $2, $3)",
            &[&version, &migration.name, &checksum(migration).as_slice()],
        )
        .await
        .map_err(failed(migration.name))?;
    if in_transaction {
        execute(client, "COMMIT", "commit a migration").await?;
    }
    Ok(())
}

/// The statements of a no-transaction file, which must each end a line with `;`: several in one
/// message would be one transaction.
fn statements(sql: &str) -> impl Iterator<Item = &str> {
    sql.split_inclusive(";\n").map(str::trim).filter(|statement| {
        statement.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with("--"))
    })
}

fn checksum(migration: &Migration) -> [u8; 32] {
    Sha256::digest(migration.sql).into()
}

#[expect(clippy::disallowed_methods, reason = "a migration is a file of statements")]
async fn execute(client: &Client, sql: &str, operation: &'static str) -> Result<(), MigrateError> {
    client.batch_execute(sql).await.map_err(failed(operation))
}

fn failed(operation: &'static str) -> impl FnOnce(tokio_postgres::Error) -> MigrateError {
    move |source| MigrateError::Database { operation, source }
}

pub(crate) const STATEMENTS: &[&Statement] = &[&APPLIED_VERSION];

const APPLIED_VERSION: Statement = Statement::new(
    "read the schema version",
    "SELECT coalesce(max(version), 0) FROM schema_migrations",
);

/// Is the schema at least as new as this binary expects? A newer one is fine: migrations keep the
/// previous binary working (`migrations/README.md`).
///
/// # Errors
/// [`Error::Statement`], also when the database has never been migrated.
pub async fn is_current(pool: &Pool) -> Result<bool, Error> {
    let connection: Connection = pool.get().await?;
    let row = connection.query_opt(&APPLIED_VERSION, &[]).await?;
    let applied: i32 = row.map_or(0, |row| row.get(0));
    Ok(usize::try_from(applied).is_ok_and(|applied| applied >= MIGRATIONS.len()))
}
