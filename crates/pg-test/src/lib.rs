//! A migrated database per test, on the server that `DATABASE_URL` names.
//!
//! Databases are cloned from a template that is migrated once, so a test pays for a copy of a few
//! files. They are dropped at the end; that of a test that panicked stays and is named. Servers are
//! started by `stack exec`, never here.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans are for services; this makes databases, and learns from the environment where"
)]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls};

/// Left on the server, so that the next run finds it migrated.
const TEMPLATE: &str = "oncebox_test_template";
/// Held alone while the template changes and shared while it is copied: PostgreSQL copies no
/// database that somebody is connected to. Any number that nothing else uses: "template" in ASCII.
const TEMPLATE_LOCK: i64 = 0x7465_6d70_6c61_7465;
/// A server on a busy machine that does not answer by then is not there.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// PostgreSQL cuts names after 63 bytes; the rest is for what makes them unique.
const NAME_LENGTH_MAX: usize = 48;

/// A database that lives as long as this value.
pub struct TestDatabase {
    server: String,
    name: String,
    kept: bool,
}

/// A new migrated database.
///
/// # Panics
/// When there is no server, with the reason and what to do: a test that cannot run has failed.
pub async fn database() -> TestDatabase {
    // A test runs in a thread that has its name.
    database_on(&server(), std::thread::current().name().unwrap_or_default()).await
}

/// A new migrated database on the server of this URL, for the test with this name.
///
/// # Panics
/// When it cannot be made.
pub async fn database_on(server: &str, test: &str) -> TestDatabase {
    migrate_template_once(server).await;
    let client = connect(server).await;
    run(&client, &format!("SELECT pg_advisory_lock_shared({TEMPLATE_LOCK})")).await;
    create(server, &client, test, &format!(" TEMPLATE {TEMPLATE}")).await
}

/// A new database without a schema.
///
/// # Panics
/// As [`database`].
pub async fn empty_database() -> TestDatabase {
    let server = server();
    let client = connect(&server).await;
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    create(&server, &client, &test, " TEMPLATE template0").await
}

impl TestDatabase {
    /// Where it is, as its owner.
    pub fn url(&self) -> String {
        with_database(&self.server, &self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When there is none to be had.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// Leaves the database on the server and says so: for a failure that is not a panic.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for TestDatabase {
    #[expect(clippy::print_stderr, reason = "the reader of a failed test must learn the name")]
    fn drop(&mut self) {
        if self.kept || std::thread::panicking() {
            eprintln!("the database of this test is kept: {}", self.name);
            return;
        }
        let (server, name) = (self.server.clone(), self.name.clone());
        // A destructor cannot await, and it may run inside a runtime that must not be blocked on.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("invariant: a small runtime can be had").block_on(async {
                // The server may be down, because stopping it was the test.
                if let Ok(client) = try_connect(&server).await {
                    let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    let _left_behind_is_harmless = client.batch_execute(&drop).await;
                }
            });
        });
        let _left_behind_is_harmless = dropper.join();
    }
}

async fn create(server: &str, client: &Client, test: &str, how: &str) -> TestDatabase {
    let name = unique_name(test);
    run(client, &format!("CREATE DATABASE {name}{how}")).await;
    TestDatabase { server: server.to_owned(), name, kept: false }
}

async fn migrate_template_once(server: &str) {
    static DONE: Mutex<Option<HashSet<String>>> = Mutex::const_new(None);
    let mut done = DONE.lock().await;
    let done = done.get_or_insert_default();
    if done.contains(server) {
        return;
    }
    let client = connect(server).await;
    run(&client, &format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    let found = client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&TEMPLATE]).await;
    if found.expect("invariant: pg_database can be read").is_none() {
        run(&client, &format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0")).await;
    }
    let template = with_database(server, TEMPLATE);
    if store::migrate::run(&template).await.is_err() {
        // Made by other migrations than today's: begin anew.
        run(&client, &format!("DROP DATABASE {TEMPLATE} WITH (FORCE)")).await;
        run(&client, &format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0")).await;
        if let Err(error) = store::migrate::run(&template).await {
            panic!("the migrations fail on an empty database: {}", chain(&error));
        }
    }
    done.insert(server.to_owned());
}

fn server() -> String {
    match std::env::var("DATABASE_URL") {
        Ok(url) if !url.is_empty() => url,
        _ => panic!(
            "DATABASE_URL is not set, and this test needs a PostgreSQL server: run `make test`, or \
             `target/release/stack exec --no-kafka -- cargo test --release …` for a private one"
        ),
    }
}

async fn connect(url: &str) -> Client {
    match try_connect(url).await {
        Ok(client) => client,
        Err(error) => panic!("no connection to the server of DATABASE_URL: {}", chain(&error)),
    }
}

async fn try_connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config: Config = url.parse()?;
    config.connect_timeout(CONNECT_LIMIT);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {}", chain(&error));
    }
}

/// Says which test it belongs to.
fn unique_name(test: &str) -> String {
    let test = test.rsplit("::").next().unwrap_or(test);
    let letters = test.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let test: String = letters.take(NAME_LENGTH_MAX).collect::<String>().to_lowercase();
    format!("t_{test}_{:08x}", uuid::Uuid::new_v4().as_fields().0)
}

/// The same server, another database. The name has none of a URL's special characters.
fn with_database(url: &str, name: &str) -> String {
    let (rest, parameters) = match url.split_once('?') {
        Some((rest, parameters)) => (rest, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let host = rest.find("://").map_or(0, |at| at + 3);
    let end = rest[host..].find('/').map_or(rest.len(), |at| host + at);
    format!("{}/{name}{parameters}", &rest[..end])
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let _infallible = write!(text, ": {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
