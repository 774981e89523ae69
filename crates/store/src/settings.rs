//! How to reach PostgreSQL, and how long to wait for it.

use std::time::Duration;

use settings::Secret;

settings::group! {
    /// PostgreSQL.
    pub struct DatabaseSettings {
        /// Connection URL of the database.
        url: Secret = "database.url" env "DATABASE_URL", required,
            "a URL such as postgres://user:password@host:5432/database", check readable;
        /// Most connections in the pool; past about eight a core PostgreSQL gets slower, not faster.
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
}

fn readable(url: &Secret) -> Result<(), String> {
    match url.expose().parse::<tokio_postgres::Config>() {
        Ok(config) if config.get_hosts().is_empty() => Err("names no host".into()),
        Ok(_) => Ok(()),
        // The driver's message may hold a part of the URL, and so of the password.
        Err(_) => Err("is not a connection URL".into()),
    }
}
