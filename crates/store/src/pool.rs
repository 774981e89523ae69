//! Connections: how they are made, bounded in time, and handed on clean.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, RecyclingMethod, Runtime};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::tls::{self, Target};
use crate::{DatabaseSettings, Error, Statement, Transaction};

/// A bounded set of connections that all behave alike.
#[derive(Clone)]
pub struct Pool(deadpool_postgres::Pool);

impl Pool {
    /// Makes a pool; no connection is opened before the first is asked for.
    ///
    /// # Errors
    /// [`Error::NoConnection`] when the URL or the certificates cannot be read.
    pub fn new(settings: &DatabaseSettings, application: &str) -> Result<Self, Error> {
        let tls::Server { mut config, connector } =
            tls::server(Target::from(settings)).map_err(|source| Error::NoConnection {
                operation: "read where the database is",
                source: Box::new(source),
            })?;
        config
            .application_name(application)
            .connect_timeout(settings.connect_timeout)
            .keepalives_idle(Duration::from_secs(30))
            .tcp_user_timeout(settings.statement_timeout + Duration::from_secs(5))
            .options(session_options(settings));
        // deadpool's own methods hand on a connection that is still inside a transaction, as a
        // cancelled future leaves it. This one ends it, and unlike a bare ROLLBACK it says nothing
        // when there is none.
        let recycling_method = RecyclingMethod::Custom("BEGIN; ROLLBACK".into());
        let manager = Manager::from_config(config, connector, ManagerConfig { recycling_method });
        let size = usize::try_from(settings.pool_max).expect("invariant: checked by the settings");
        // All three are None by default: a server that accepts and then hangs would hold a caller
        // for ever.
        let timeout = Some(settings.connect_timeout);
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            .wait_timeout(timeout)
            .create_timeout(timeout)
            .recycle_timeout(timeout)
            .build()
            .map_err(|source| Error::NoConnection {
                operation: "make the pool",
                source: Box::new(source),
            })?;
        Ok(Self(pool))
    }

    /// A connection, within `database.connect_timeout`.
    ///
    /// # Errors
    /// [`Error::NoConnection`] when none came free or could be made in time.
    pub async fn get(&self) -> Result<Connection, Error> {
        let object = self.0.get().await.map_err(|source| Error::NoConnection {
            operation: "take a connection from the pool",
            source: Box::new(source),
        })?;
        Ok(Connection(object))
    }
}

/// The session parameters of every connection.
fn session_options(settings: &DatabaseSettings) -> String {
    [
        ("statement_timeout", settings.statement_timeout.as_millis().to_string()),
        ("lock_timeout", settings.lock_timeout.as_millis().to_string()),
        ("idle_in_transaction_session_timeout", "10000".into()),
        // A statement whose client is gone ends instead of holding its locks.
        ("client_connection_check_interval", "1000".into()),
        // Statements are prepared when the tables may still be empty. A plan made then must be
        // right when they hold millions: one plan, by the indexes.
        ("plan_cache_mode", "force_generic_plan".into()),
        ("enable_seqscan", "off".into()),
        // It reads all of an index to join a few rows, as a table that was just truncated suggests.
        ("enable_mergejoin", "off".into()),
        // It has no order: under ORDER BY and LIMIT it would read and sort all that matches.
        ("enable_bitmapscan", "off".into()),
        // Statements take a millisecond; compiling one takes fifty.
        ("jit", "off".into()),
        ("client_min_messages", "error".into()),
    ]
    .map(|(name, value)| format!("-c {name}={value}"))
    .join(" ")
}

/// A connection of the pool. Each statement is a transaction of its own.
pub struct Connection(Object);

impl Connection {
    /// Starts a READ COMMITTED transaction.
    ///
    /// # Errors
    /// [`Error::Statement`] when the server refuses or the connection has ended.
    #[expect(clippy::disallowed_methods, reason = "the one place: what it returns is wrapped")]
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        let inner = self.0.transaction().await.map_err(Error::statement("begin a transaction"))?;
        Ok(Transaction::new(inner))
    }

    /// # Errors
    /// [`Error::Statement`] names the operation.
    pub async fn query(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        match self.query_once(statement, params).await {
            // A migration changed a table under a prepared statement. It ran nothing, so it may
            // be prepared anew.
            Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                self.0.statement_cache.clear();
                self.query_once(statement, params).await
            }
            result => result,
        }
        .map_err(Error::statement(statement.operation))
    }

    async fn query_once(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let prepared = self.0.prepare_cached(statement.sql).await?;
        self.0.query(&prepared, params).await
    }

    /// The row, if there is one.
    ///
    /// # Errors
    /// [`Error::Statement`] names the operation.
    pub async fn query_opt(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Error> {
        Ok(self.query(statement, params).await?.pop())
    }

    /// The number of rows written.
    ///
    /// # Errors
    /// [`Error::Statement`] names the operation.
    pub async fn execute(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let operation = Error::statement(statement.operation);
        let prepared = match self.0.prepare_cached(statement.sql).await {
            Ok(prepared) => prepared,
            Err(error) => return Err(operation(error)),
        };
        self.0.execute(&prepared, params).await.map_err(operation)
    }

    /// Takes the connection out of the pool for good: nobody gets it after a fault.
    pub fn discard(self) {
        drop(Object::take(self.0));
    }
}
