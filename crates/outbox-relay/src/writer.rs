//! Writes what became of rows: marks those that Kafka acknowledged, parks those that can never be
//! sent. On a connection and a task of its own, so that reading and sending wait for no commit. One
//! order at a time; what comes up meanwhile goes into the next.
//!
//! While the database is away it tries again: writing twice is safe.

use std::sync::Arc;

use prometheus::Histogram;
use store::Error;
use store::outbox::relay::{self as outbox, Receipt, Refused};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::in_flight::{Row, Stage};
use crate::routes::Route;
use crate::session::Session;

/// What is to be written, apart from the rows in memory.
#[derive(Debug, Default)]
pub struct Order {
    receipts: Vec<Receipt>,
    refused: Vec<Refused>,
    seqs: Seqs,
}

#[derive(Debug, Default)]
struct Seqs {
    acknowledged: Vec<i64>,
    refused: Vec<i64>,
}

/// An order that was carried out: by seq, the rows that it was about.
#[derive(Debug)]
pub struct Written {
    pub acknowledged: Vec<i64>,
    /// How many of these had not been marked before.
    pub marked: u64,
    pub refused: Vec<i64>,
    /// How many of these were parked: none in a bucket that another relay has taken.
    pub parked: u64,
}

/// The relay's end of it.
#[derive(Debug)]
pub struct Writer {
    orders: mpsc::Sender<Order>,
    written: mpsc::Receiver<Written>,
    /// Carried out, and not yet fetched.
    ready: Option<Written>,
    busy: bool,
    _task: AbortOnDropHandle<()>,
}

impl Writer {
    /// Starts the task. It ends with the relay.
    pub fn spawn(
        relay: Uuid,
        route: Arc<Route>,
        session: Session,
        mark_duration: Histogram,
    ) -> Self {
        let (orders, received) = mpsc::channel(1);
        let (carried_out, written) = mpsc::channel(1);
        let mut task = Task { relay, route, session, mark_duration };
        let task = tokio::spawn(async move { task.run(received, carried_out).await });
        Self { orders, written, ready: None, busy: false, _task: AbortOnDropHandle::new(task) }
    }

    /// It takes no order now.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Hands over what is due. To be called when it is not busy.
    pub fn write(&mut self, order: Order) {
        self.busy = self.orders.try_send(order).is_ok();
    }

    /// Waits until an order was carried out, which [`fetch`](Self::fetch) gives then.
    pub async fn written(&mut self) {
        if self.ready.is_none() {
            match self.written.recv().await {
                Some(written) => self.ready = Some(written),
                // Its task is gone with this process.
                None => std::future::pending().await,
            }
        }
    }

    /// The order that was carried out since the last call.
    pub fn fetch(&mut self) -> Option<Written> {
        let written = self.ready.take().or_else(|| self.written.try_recv().ok())?;
        self.busy = false;
        Some(written)
    }
}

struct Task {
    relay: Uuid,
    route: Arc<Route>,
    session: Session,
    mark_duration: Histogram,
}

impl Task {
    async fn run(&mut self, mut orders: mpsc::Receiver<Order>, carried_out: mpsc::Sender<Written>) {
        // So that readiness does not wait for the first order.
        self.carry_out(&Order::default()).await;
        while let Some(order) = orders.recv().await {
            let (marked, parked) = self.carry_out(&order).await;
            let Seqs { acknowledged, refused } = order.seqs;
            let written = Written { acknowledged, marked, refused, parked };
            if carried_out.send(written).await.is_err() {
                return;
            }
        }
    }

    async fn carry_out(&mut self, order: &Order) -> (u64, u64) {
        loop {
            let Some(connection) = self.session.take().await else { continue };
            let statements = async {
                let (marked, parked) = tokio::join!(
                    self.mark(&connection, &order.receipts),
                    self.park(&connection, &order.refused)
                );
                Ok((marked?, parked?))
            };
            let answer = self.session.wait(statements).await;
            if let Some(counts) = self.session.settle(connection, answer).await {
                return counts;
            }
        }
    }

    async fn mark(
        &self,
        connection: &store::Connection,
        receipts: &[Receipt],
    ) -> Result<u64, Error> {
        if receipts.is_empty() {
            return Ok(0);
        }
        let timer = self.mark_duration.start_timer();
        let marked = outbox::mark(connection, &self.route.topic, receipts).await;
        timer.observe_duration();
        marked
    }

    async fn park(
        &self,
        connection: &store::Connection,
        refused: &[Refused],
    ) -> Result<u64, Error> {
        if refused.is_empty() {
            return Ok(0);
        }
        outbox::park(connection, self.relay, refused).await
    }
}

impl Order {
    pub fn of(acknowledged: &[&Row], refused: &[&Row]) -> Self {
        let seqs = |rows: &[&Row]| rows.iter().map(|row| row.record.seq).collect();
        Self {
            receipts: acknowledged.iter().filter_map(|row| receipt(row)).collect(),
            refused: refused.iter().filter_map(|row| refusal(row)).collect(),
            seqs: Seqs { acknowledged: seqs(acknowledged), refused: seqs(refused) },
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
