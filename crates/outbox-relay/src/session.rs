//! A connection to the database that is opened anew after each failure, and the readiness that goes
//! with it.

use std::time::Duration;

use store::{Connection, Error, Pool};
use telemetry::Condition;
use tokio::time::error::Elapsed;

use crate::backoff::Backoff;

/// How much longer than the server's own limit a statement is waited for: past that the connection
/// itself is dead.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// A database that is back is used again after at most this long.
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub struct Session {
    pool: Pool,
    /// How long an answer is waited for.
    limit: Duration,
    condition: Condition,
    backoff: Backoff,
    connection: Option<Connection>,
}

impl Session {
    pub fn new(pool: &Pool, statement_timeout: Duration, condition: Condition) -> Self {
        Self {
            pool: pool.clone(),
            limit: statement_timeout + ANSWER_MARGIN,
            condition,
            backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            connection: None,
        }
    }

    /// The connection, for some statements; `None` when there is none, after a pause.
    pub async fn take(&mut self) -> Option<Connection> {
        if let Some(open) = self.connection.take() {
            return Some(open);
        }
        match self.pool.get().await {
            Ok(new) => Some(new),
            Err(error) => {
                self.pause(Some(&error)).await;
                None
            }
        }
    }

    /// Waits for statements on it, as long as an answer may take.
    pub async fn wait<T>(&self, statements: impl Future<Output = T>) -> Result<T, Elapsed> {
        tokio::time::timeout(self.limit, statements).await
    }

    /// Takes the connection back. `None` when they failed or no answer came in time, after a pause.
    pub async fn settle<T>(
        &mut self,
        connection: Connection,
        answer: Result<Result<T, Error>, Elapsed>,
    ) -> Option<T> {
        let problem = match answer {
            Ok(Ok(answer)) => {
                self.connection = Some(connection);
                self.backoff.reset();
                self.condition.set(true);
                return Some(answer);
            }
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        connection.discard();
        self.pause(problem.as_ref()).await;
        None
    }

    async fn pause(&mut self, problem: Option<&Error>) {
        let pause = self.backoff.next();
        tracing::warn!(
            error = problem.map(|error| error as &dyn std::error::Error),
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "the relay waits for the database"
        );
        let reason = problem.map_or("no answer in time".into(), ToString::to_string);
        self.condition.set_false(reason);
        tokio::time::sleep(pause).await;
    }
}
