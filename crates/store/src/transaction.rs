//! A transaction that cannot be committed after one of its statements has failed.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::{Error, Statement};

/// READ COMMITTED. Dropped without [`Transaction::commit`], it is rolled back.
///
/// `tokio-postgres` reports `commit` as Ok when the server answered ROLLBACK because an earlier
/// error had been swallowed (rust-postgres #1334). Here any error poisons the transaction, and
/// then commit rolls back and says so.
pub struct Transaction<'a> {
    inner: deadpool_postgres::Transaction<'a>,
    poisoned: AtomicBool,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(inner: deadpool_postgres::Transaction<'a>) -> Self {
        Self { inner, poisoned: AtomicBool::new(false) }
    }

    /// # Errors
    /// [`Error::Poisoned`] after a rollback; [`Error::CommitUnknown`] when COMMIT got no answer.
    pub async fn commit(self) -> Result<(), Error> {
        if self.poisoned.load(Ordering::Relaxed) {
            // An error here changes nothing: a closed connection is rolled back by the server.
            let _ = self.inner.rollback().await;
            return Err(Error::Poisoned);
        }
        self.inner.commit().await.map_err(Error::CommitUnknown)
    }

    /// # Errors
    /// [`Error::Statement`] names the operation; the transaction is poisoned.
    pub async fn query(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let run = async {
            let prepared = self.inner.prepare_cached(statement.sql).await?;
            self.inner.query(&prepared, params).await
        };
        self.poisoning(statement, run.await)
    }

    /// The row, if there is one.
    ///
    /// # Errors
    /// [`Error::Statement`] names the operation; the transaction is poisoned.
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
    /// [`Error::Statement`] names the operation; the transaction is poisoned.
    pub async fn execute(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let run = async {
            let prepared = self.inner.prepare_cached(statement.sql).await?;
            self.inner.execute(&prepared, params).await
        };
        self.poisoning(statement, run.await)
    }

    fn poisoning<T>(
        &self,
        statement: &Statement,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        result.map_err(|source| {
            self.poisoned.store(true, Ordering::Relaxed);
            Error::Statement { operation: statement.operation, source }
        })
    }
}
