//! The relay as a service: a loop for each topic, their keeper of leases, the gauges, and how all of
//! them start and end.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use store::{Connection, Pool};
use telemetry::{Condition, Readiness};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::backlog::BacklogMetrics;
use crate::destination::Destination;
use crate::leases::{Keeper, Leases, Occupant};
use crate::metrics::Metrics;
use crate::publisher::Publisher;
use crate::pulse::Pulse;
use crate::relay::Relay;
use crate::retention::Retention;
use crate::routes::Route;
use crate::session::Session;
use crate::settings::Settings;
use crate::writer::Writer;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database pool could not be made")]
    Pool(#[source] store::Error),
    #[error("the Kafka client refused its settings")]
    Kafka(#[source] rdkafka::error::KafkaError),
    #[error("a task of the relay ended by itself")]
    TaskEnded,
}

pub struct Service {
    settings: Settings,
    pool: Pool,
    loops: Vec<Loop>,
    keeper: Arc<Keeper>,
    leases: Arc<Leases>,
    backlog: BacklogMetrics,
    retention: Arc<Retention>,
}

/// The relay of one topic, and how it fares.
struct Loop {
    relay: Relay,
    session: Session,
    pulse: Arc<Pulse>,
    looping: Condition,
}

impl Service {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// When the pool or the Kafka client refuse their settings.
    pub fn build(
        settings: Settings,
        registry: &Registry,
        readiness: &Readiness,
    ) -> Result<Self, Error> {
        let pool = Pool::new(&settings.database, "outbox-relay").map_err(Error::Pool)?;
        let retention = Retention::new(&settings.retention, &settings.database, registry)
            .map_err(Error::Pool)?;
        let metrics = Metrics::register(registry);
        let id = new_relay_id();
        let leases = Arc::new(Leases::default());
        let keeper = Keeper::new(id, &settings, metrics.clone());
        let new_loop = |route| {
            let publisher = Publisher::new(&settings.kafka).map_err(Error::Kafka)?;
            let destination =
                Destination::new(route, metrics.clone(), readiness.condition("kafka"));
            let session = || {
                let statement_timeout = settings.database.statement_timeout;
                Session::new(&pool, statement_timeout, readiness.condition("database"))
            };
            let marks = metrics.mark_duration.clone();
            let writer = Writer::spawn(id, Arc::clone(&destination.route), session(), marks);
            let (metrics, occupant) = (metrics.clone(), Occupant::new(&leases));
            let relay = Relay::new(&settings, metrics, occupant, publisher, destination, writer);
            let looping = readiness.condition("loop");
            Ok(Loop { relay, session: session(), pulse: Arc::default(), looping })
        };
        let loops: Result<_, Error> = Route::all(&settings).into_iter().map(new_loop).collect();
        Ok(Self {
            pool,
            loops: loops?,
            keeper: Arc::new(keeper),
            leases,
            backlog: BacklogMetrics::register(registry),
            retention: Arc::new(retention),
            settings,
        })
    }

    /// Relays until the token is cancelled, then drains: what was sent is awaited and marked, for
    /// at most the grace period, and the buckets are given back.
    ///
    /// # Errors
    /// When a part of the relay panicked.
    pub async fn run(mut self, token: CancellationToken) -> Result<(), Error> {
        let mut tasks = self.spawn_tasks();
        let mut loops = self.spawn_loops(&token);
        let enough = CancellationToken::new();
        let mut keeping = self.spawn_keeper(enough.clone());
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            _ = loops.join_next() => return Err(Error::TaskEnded),
            _ = tasks.join_next() => return Err(Error::TaskEnded),
            _ = &mut keeping => return Err(Error::TaskEnded),
        }
        let grace = self.settings.shutdown.grace;
        // What is abandoned was logged; it is still pending and goes out later.
        if let Ok(ended) =
            shutdown::drain(grace, "records sent to Kafka", all_end(&mut loops)).await
        {
            ended?;
        }
        loops.shutdown().await;
        // The keeper kept the leases until here. It ends by itself: a claim that was cut off could
        // still be carried out after the buckets were given back.
        enough.cancel();
        keeping.await.map_err(|_panicked| Error::TaskEnded)?;
        tasks.shutdown().await;
        let leave = async {
            let connection = self.pool.get().await?;
            self.keeper.leave(&connection, &self.leases).await
        };
        match tokio::time::timeout(self.settings.relay.lease, leave).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the buckets could not be given back; their leases run out"
            ),
            Err(_) => tracing::warn!("the buckets could not be given back; their leases run out"),
        }
        Ok(())
    }

    fn spawn_loops(&mut self, token: &CancellationToken) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for one in self.loops.drain(..) {
            let token = token.clone();
            tasks.spawn(async move { one.run(&token).await });
        }
        tasks
    }

    fn spawn_keeper(&self, enough: CancellationToken) -> AbortOnDropHandle<()> {
        let (keeper, leases) = (Arc::clone(&self.keeper), Arc::clone(&self.leases));
        let (pool, lease) = (self.pool.clone(), self.settings.relay.lease);
        let keeping = async move { keep_leases(&keeper, &leases, &pool, lease, &enough).await };
        AbortOnDropHandle::new(tokio::spawn(keeping))
    }

    fn spawn_tasks(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (backlog, pool) = (self.backlog.clone(), self.pool.clone());
        let interval = self.settings.relay.backlog_interval;
        tasks.spawn(async move { backlog.run(&pool, interval).await });
        let retention = Arc::clone(&self.retention);
        tasks.spawn(async move { retention.run().await });
        for it in &self.loops {
            let (pulse, looping) = (Arc::clone(&it.pulse), it.looping.clone());
            tasks.spawn(async move { pulse.watch(looping).await });
        }
        tasks
    }
}

#[expect(clippy::disallowed_methods, reason = "a relay mints its own id, once")]
fn new_relay_id() -> Uuid {
    Uuid::now_v7()
}

async fn all_end(loops: &mut JoinSet<()>) -> Result<(), Error> {
    while let Some(ended) = loops.join_next().await {
        ended.map_err(|_panicked| Error::TaskEnded)?;
    }
    Ok(())
}

impl Loop {
    /// Passes until the token is cancelled and nothing is in memory any more. While the database is
    /// away it waits; rows in memory stay there.
    async fn run(mut self, token: &CancellationToken) {
        loop {
            let draining = token.is_cancelled();
            if draining {
                self.relay.drain();
                if self.relay.is_idle() {
                    return self.relay.end();
                }
            }
            self.pulse.beat(std::time::Instant::now());
            let Some(connection) = self.session.take().await else { continue };
            let answer = self.session.wait(self.relay.run_once(&connection)).await;
            if self.session.settle(connection, answer).await.is_none() {
                continue;
            }
            tokio::select! {
                () = self.relay.rest() => {}
                // A drain does not hurry: it waits for reports.
                () = token.cancelled(), if !draining => {}
            }
        }
    }
}

/// Renews the leases until it is enough. A renewal that takes as long as a lease is as good as none.
async fn keep_leases(
    keeper: &Keeper,
    leases: &Leases,
    pool: &Pool,
    lease: Duration,
    enough: &CancellationToken,
) {
    let mut connection: Option<Connection> = None;
    loop {
        let renewal = async {
            let open = match connection.take() {
                Some(open) => open,
                None => pool.get().await?,
            };
            let result = keeper.run_once(&open, leases).await;
            match &result {
                Ok(()) => connection = Some(open),
                Err(_) => open.discard(),
            }
            result
        };
        match tokio::time::timeout(lease, renewal).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the leases could not be renewed"
            ),
            Err(_) => tracing::warn!("the leases could not be renewed in time"),
        }
        keeper.measure(leases);
        tokio::select! {
            () = keeper.pause(leases) => {}
            () = enough.cancelled() => return,
        }
    }
}
