//! What a pass of the relay has to do with the database. The statements of one pass run beside each
//! other on one connection, each a transaction of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use store::outbox::relay::{self as outbox, OutboxRecord, ReadUpTo, Receipt, Refused, Want};
use store::{Connection, Error};
use uuid::Uuid;

use crate::in_flight::{Row, Stage};
use crate::routes::Route;

/// What is read in one pass. Nothing is asked where there is nothing to ask for.
pub struct Questions {
    pub wants: Vec<Want>,
    pub bytes_max: usize,
    pub payload_bytes_max: usize,
    pub sweep: Vec<ReadUpTo>,
}

/// What a pass writes, apart from the rows in memory, so that those can be sent meanwhile.
pub struct Outcomes {
    pub acknowledged: Vec<Receipt>,
    pub refused: Vec<Refused>,
}

impl Outcomes {
    pub fn of(acknowledged: &[&Row], refused: &[&Row]) -> Self {
        Self {
            acknowledged: acknowledged.iter().filter_map(|row| receipt(row)).collect(),
            refused: refused.iter().filter_map(|row| refusal(row)).collect(),
        }
    }
}

fn receipt(row: &Row) -> Option<Receipt> {
    let Stage::Acknowledged(placed) = row.stage else { return None };
    Some(Receipt {
        tenant_id: row.record.tenant_id.clone(),
        id: row.record.id,
        partition: placed.partition,
        offset: placed.offset,
    })
}

fn refusal(row: &Row) -> Option<Refused> {
    let Stage::Refused(error) = &row.stage else { return None };
    tracing::error!(
        outbox.id = %row.record.id,
        outbox.seq = row.record.seq,
        event_type = row.record.event_type,
        error,
        "the row can never be sent as it is: it is parked, for an operator to decide"
    );
    Some(Refused {
        tenant_id: row.record.tenant_id.clone(),
        id: row.record.id,
        bucket: row.record.bucket,
        epoch: row.epoch,
        error: error.clone(),
    })
}

pub struct Database<'a> {
    pub connection: &'a Connection,
    pub relay: Uuid,
    pub route: Arc<Route>,
    pub mark_duration: Histogram,
}

impl Database<'_> {
    pub async fn read(&self, questions: &Questions) -> Result<Option<Vec<OutboxRecord>>, Error> {
        if questions.wants.is_empty() {
            return Ok(None);
        }
        let Questions { wants, bytes_max, payload_bytes_max, .. } = questions;
        outbox::read(self.connection, wants, &self.route.selection, *bytes_max, *payload_bytes_max)
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
        let found =
            outbox::passed_over(self.connection, &questions.sweep, &self.route.selection).await?;
        Ok(Some((found, asked.elapsed())))
    }

    pub async fn mark(&self, receipts: &[Receipt]) -> Result<u64, Error> {
        if receipts.is_empty() {
            return Ok(0);
        }
        let timer = self.mark_duration.start_timer();
        let marked = outbox::mark(self.connection, &self.route.topic, receipts).await;
        timer.observe_duration();
        marked
    }

    pub async fn park(&self, refused: &[Refused]) -> Result<u64, Error> {
        if refused.is_empty() {
            return Ok(0);
        }
        outbox::park(self.connection, self.relay, refused).await
    }
}

/// The answer, or the first problem of several statements.
pub fn unless_failed<T>(result: Result<T, Error>, problem: &mut Option<Error>) -> Option<T> {
    match result {
        Ok(answer) => Some(answer),
        Err(error) => {
            problem.get_or_insert(error);
            None
        }
    }
}
