//! The store against a real PostgreSQL, a database a test.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests speak to the database as an outsider would, and fail where they stand"
)]

mod api_keys;
mod charges;
mod connections;
mod follow_ups;
mod inbox;
mod migrations;
mod outbox_contract;
mod retention;
mod roles;
mod statements;
mod tls;

use std::time::Duration;

use pg_test::TestDatabase;
use settings::Secret;
use store::{DatabaseSettings, Pool};

fn settings(database: &TestDatabase) -> DatabaseSettings {
    DatabaseSettings {
        url: Secret::new(database.url()),
        tls: None,
        tls_ca: None,
        pool_max: 4,
        connect_timeout: Duration::from_secs(5),
        statement_timeout: Duration::from_secs(10),
        lock_timeout: Duration::from_millis(200),
    }
}

fn pool(database: &TestDatabase) -> Pool {
    Pool::new(&settings(database), "store tests").unwrap()
}

/// Waits until some session of the database waits for a lock, and returns its process id.
async fn until_blocked(database: &TestDatabase) -> i32 {
    let client = database.client().await;
    let blocked = "SELECT pid FROM pg_stat_activity
         WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let look = async {
        loop {
            if let Some(row) = client.query_opt(blocked, &[]).await.unwrap() {
                return row.get(0);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.expect("nobody waits for a lock")
}
