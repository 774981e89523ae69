//! The relay as a service: its loop, its keeper of leases, its gauges, and how they start and end.

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
use crate::backoff::Backoff;
use crate::destination::Destination;
use crate::leases::{Keeper, Leases};
use crate::metrics::Metrics;
use crate::publisher::Publisher;
use crate::pulse::Pulse;
use crate::relay::Relay;
use crate::retention::Retention;
use crate::settings::Settings;

/// How much longer than the server's own limit a statement is waited for: past that the connection
/// itself is dead.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
const DATABASE_PAUSE_FIRST: Duration = Duration::from_millis(50);
/// A database that is back is used again after at most this long.
const DATABASE_PAUSE_MAX: Duration = Duration::from_secs(2);

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
    relay: Relay,
    keeper: Arc<Keeper>,
    leases: Arc<Leases>,
    backlog: BacklogMetrics,
    retention: Arc<Retention>,
    pulse: Arc<Pulse>,
    database: Condition,
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
        let publisher = Publisher::new(&settings.kafka).map_err(Error::Kafka)?;
        let metrics = Metrics::register(registry);
        let id = new_relay_id();
        let leases = Arc::new(Leases::default());
        let keeper = Keeper::new(id, &settings, metrics.clone());
        let database = readiness.condition("database");
        let kafka = readiness.condition("kafka");
        let destination = Destination::new(&settings.kafka.topic, metrics.clone(), kafka);
        let relay = Relay::new(id, &settings, metrics, Arc::clone(&leases), publisher, destination);
        Ok(Self {
            pool,
            relay,
            keeper: Arc::new(keeper),
            leases,
            backlog: BacklogMetrics::register(registry),
            retention: Arc::new(retention),
            pulse: Arc::default(),
            database,
            looping: readiness.condition("loop"),
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
        let enough = CancellationToken::new();
        let mut keeping = self.spawn_keeper(enough.clone());
        let grace = self.settings.shutdown.grace;
        let (relay, pool) = (&mut self.relay, &self.pool);
        let limit = self.settings.database.statement_timeout + ANSWER_MARGIN;
        let parts = Parts { pool, limit, pulse: &self.pulse, database: &self.database };
        {
            let mut relaying = std::pin::pin!(relay_until(relay, &parts, &token));
            tokio::select! {
                () = &mut relaying => {}
                _ = tasks.join_next() => return Err(Error::TaskEnded),
                _ = &mut keeping => return Err(Error::TaskEnded),
                () = token.cancelled() => {
                    // What is abandoned was logged; it is still pending and goes out later.
                    let _ = shutdown::drain(grace, "records sent to Kafka", relaying).await;
                }
            }
        }
        // The keeper kept the leases until here. It ends by itself: a claim that was cut off could
        // still be carried out after the buckets were given back.
        enough.cancel();
        keeping.await.map_err(|_panicked| Error::TaskEnded)?;
        tasks.shutdown().await;
        let relay = &self.relay;
        let leave = async {
            let connection = self.pool.get().await?;
            self.keeper.leave(&connection, &self.leases, |bucket| !relay.holds(bucket)).await
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
        let (pulse, looping) = (Arc::clone(&self.pulse), self.looping.clone());
        tasks.spawn(async move { pulse.watch(looping).await });
        tasks
    }
}

#[expect(clippy::disallowed_methods, reason = "a relay mints its own id, once")]
fn new_relay_id() -> Uuid {
    Uuid::now_v7()
}

struct Parts<'a> {
    pool: &'a Pool,
    /// How long a pass is waited for.
    limit: Duration,
    pulse: &'a Pulse,
    database: &'a Condition,
}

/// The loop: passes until the token is cancelled and nothing is in memory any more. While the
/// database is away it waits; rows in memory stay there.
async fn relay_until(relay: &mut Relay, parts: &Parts<'_>, token: &CancellationToken) {
    let mut backoff = Backoff::new(DATABASE_PAUSE_FIRST, DATABASE_PAUSE_MAX);
    let mut connection: Option<Connection> = None;
    loop {
        let draining = token.is_cancelled();
        if draining {
            relay.drain();
            if relay.is_idle() {
                return;
            }
        }
        parts.pulse.beat(std::time::Instant::now());
        let problem = match &connection {
            None => match parts.pool.get().await {
                Ok(new) => {
                    connection = Some(new);
                    continue;
                }
                Err(error) => Some(error),
            },
            Some(open) => match tokio::time::timeout(parts.limit, relay.run_once(open)).await {
                Ok(Ok(_)) => {
                    backoff.reset();
                    parts.database.set(true);
                    tokio::select! {
                        () = relay.rest() => {}
                        // A drain does not hurry: it waits for reports.
                        () = token.cancelled(), if !draining => {}
                    }
                    continue;
                }
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            },
        };
        if let Some(broken) = connection.take() {
            broken.discard();
        }
        let pause = backoff.next();
        let reason = problem.as_ref().map_or("no answer in time".into(), ToString::to_string);
        tracing::warn!(
            error = problem.as_ref().map(|error| error as &dyn std::error::Error),
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "the relay waits for the database"
        );
        parts.database.set_false(reason);
        tokio::time::sleep(pause).await;
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
