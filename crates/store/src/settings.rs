//! How to reach PostgreSQL, and how long to wait for it.

use std::path::PathBuf;
use std::time::Duration;

use settings::Secret;

use crate::tls::{self, Target, Tls};

settings::group! {
    /// PostgreSQL.
    pub struct DatabaseSettings {
        /// Connection URL of the database.
        url: Secret = "database.url" env "DATABASE_URL", required,
            "a URL such as postgres://user:password@host:5432/database", check readable;
        /// Whether connections are encrypted and the server's certificate and name are verified.
        /// Unset: as sslmode in the URL says, and disable when it says nothing.
        tls: Option<Tls> = "database.tls", optional, "disable or verify-full";
        /// File of the certificates (PEM) that the server's must be signed by; unset: the system's.
        tls_ca: Option<PathBuf> = "database.tls_ca", optional, "the path of a PEM file";
        /// Most connections in a pool; past about eight a core PostgreSQL gets slower, not faster.
        /// charge-api has two pools, for reads and for charges that wait, and one connection more.
        pool_max: u32 = "database.pool_max", default "16",
            "an integer from 1 to 1000", range 1..=1000;
        /// How long to wait for a free connection, or for a new one to be made.
        connect_timeout: Duration = "database.connect_timeout", default "3s",
            "a duration from 10ms to 10m", range Duration::from_millis(10)..=Duration::from_secs(600);
        /// When the server cancels a statement.
        statement_timeout: Duration = "database.statement_timeout", default "10s",
            "a duration from 10ms to 10m", range Duration::from_millis(10)..=Duration::from_secs(600);
        /// When the server gives up waiting for a lock.
        lock_timeout: Duration = "database.lock_timeout", default "5s",
            "a duration from 10ms to 10m", range Duration::from_millis(10)..=Duration::from_secs(600);
    }
    check agree
}

fn readable(url: &Secret) -> Result<(), String> {
    match tls::config(url.expose()) {
        None => Err("is not a connection URL".into()),
        Some(config) if config.get_hosts().is_empty() => Err("names no host".into()),
        Some(_) => Ok(()),
    }
}

fn agree(settings: &DatabaseSettings) -> Vec<(&'static str, String)> {
    let wrong = tls::server(Target::from(settings)).err();
    wrong.map(|wrong| (wrong.key, wrong.why)).into_iter().collect()
}
