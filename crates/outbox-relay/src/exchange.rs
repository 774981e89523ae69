//! What a pass of the relay asks the database. The statements of one pass run beside each other on one
//! connection, each a transaction of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::outbox::relay::{self as outbox, OutboxRecord, ReadUpTo, Want};
use store::{Connection, Error};

use crate::routes::Route;

/// What is read in one pass. Nothing is asked where there is nothing to ask for.
pub struct Questions {
    pub wants: Vec<Want>,
    pub bytes_max: usize,
    pub payload_bytes_max: usize,
    pub sweep: Vec<ReadUpTo>,
}

pub struct Database<'a> {
    pub connection: &'a Connection,
    pub route: Arc<Route>,
}

impl Database<'_> {
    pub async fn read(&self, questions: &Questions) -> Result<Option<Vec<OutboxRecord>>, Error> {
        if questions.wants.is_empty() {
            return Ok(None);
        }
        let Questions { wants, bytes_max, payload_bytes_max, .. } = questions;
        let selection = &self.route.selection;
        outbox::read(self.connection, wants, selection, *bytes_max, *payload_bytes_max)
            .await
            .map(Some)
    }

    pub async fn sweep(
        &self,
        questions: &Questions,
    ) -> Result<Option<(Vec<(i16, i64)>, Duration)>, Error> {
        if questions.sweep.is_empty() {
            return Ok(None);
        }
        let asked = Instant::now();
        let selection = &self.route.selection;
        let found = outbox::passed_over(self.connection, &questions.sweep, selection).await?;
        Ok(Some((found, asked.elapsed())))
    }
}
