//! Overlap that is forced: charges of one amount that wait, in the middle of their statement, for
//! as long as the test wants.

use tokio_postgres::Client;

use crate::app::{TestApp, eventually};

/// The amount that is held; any that no test charges otherwise.
pub const HELD: &str = r#"{"amountCents":666}"#;
pub const HELD_OTHER: &str = r#"{"amountCents":666,"description":"another"}"#;

/// Statements may wait for the test, not only for each other.
pub const PATIENT: &[(&str, &str)] = &[
    ("ONCEBOX_DATABASE_LOCK_TIMEOUT", "5m"),
    ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "5m"),
    ("ONCEBOX_HTTP_DEADLINE", "5m"),
];

/// Any number that nothing else uses.
const GATE: i64 = 0x6761_7465;

pub struct Hold {
    holder: Client,
    observer: Client,
    pid: i32,
}

impl Hold {
    pub async fn on(app: &TestApp) -> Self {
        let (holder, observer) = (app.client().await, app.client().await);
        let pid = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        // Shared in the trigger: those that wait do not wait for each other.
        let trigger = format!(
            "CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END $$;
             CREATE OR REPLACE TRIGGER hold AFTER INSERT ON charges FOR EACH ROW
                 WHEN (NEW.amount_cents = 666) EXECUTE FUNCTION hold()"
        );
        observer.batch_execute(&trigger).await.unwrap();
        holder
            .batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({GATE})"))
            .await
            .unwrap();
        Self { holder, observer, pid }
    }

    /// Waits until a charge by itself waits here: a batch does not wait for long.
    pub async fn reached(&self) {
        self.reached_by(1).await;
    }

    pub async fn reached_by(&self, count: usize) {
        let waiting = "SELECT pid FROM pg_stat_activity
             WHERE $1 = ANY (pg_blocking_pids(pid)) AND application_name <> 'charge-api committer'";
        eventually("charges wait for the hold", async || {
            let rows = self.observer.query(waiting, &[&self.pid]).await.unwrap();
            (rows.len() >= count).then_some(())
        })
        .await;
    }

    pub async fn release(self) {
        self.holder.batch_execute("ROLLBACK").await.unwrap();
    }
}
