//! The charge API: HTTP in, one transaction out.
//!
//! A charge comes in by `routes/charges.rs` and is created by `create_charge.rs`. What a key means
//! is decided there and in the database, never by a cache; events are published by the relay.

mod api_error;
mod auth;
mod charge_body;
mod charge_query;
mod committer;
mod create_charge;
mod edge;
mod in_flight;
mod jobs;
mod limits;
mod metrics;
#[cfg(test)]
mod openapi;
mod prefer;
mod request_body;
mod routes;
mod settings;
mod settled;
mod trace_context;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_server::{Server, ServerHandle};
use actix_web::App as ActixApp;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use prometheus::Registry;
use store::Pool;
use telemetry::{Condition, Readiness};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Authenticator;
use crate::committer::Committer;
use crate::create_charge::Context;
use crate::in_flight::InFlight;
use crate::jobs::Jobs;
use crate::limits::Limits;
use crate::metrics::Metrics;
pub use crate::settings::{Auth, BatchSettings, ChargeSettings, HttpSettings, Settings};

/// How often the database is asked whether it is there, for readiness.
const DATABASE_CHECK: Duration = Duration::from_secs(1);

/// What every request handler needs.
pub struct Api {
    authenticator: Authenticator,
    limits: Limits,
    context: Context,
    http: HttpSettings,
    charges: ChargeSettings,
    wait_max: Duration,
    metrics: Metrics,
}

/// The bound API, which answers once [`App::run`] is polled.
pub struct App {
    server: Server,
    addr: SocketAddr,
    /// Tells the connections to close after the request they are at.
    draining: CancellationToken,
    /// Charges that were accepted and are still being written.
    tasks: TaskTracker,
    jobs: Jobs,
    pool: Pool,
    database: Condition,
    accepting: Condition,
}

impl App {
    /// Binds the public port and starts the committer.
    ///
    /// # Errors
    /// When the port is taken or the database's URL cannot be read.
    pub fn bind(
        settings: &Settings,
        registry: &Registry,
        readiness: &Readiness,
    ) -> anyhow::Result<Self> {
        let metrics = Metrics::register(registry);
        let pool = Pool::new(&settings.database, "charge-api")?;
        let tasks = TaskTracker::new();
        let committer = Committer::start(
            &settings.batch,
            settings.idempotency.lifetime(),
            settings.http.deadline,
            &settings.database,
            metrics.clone(),
            &tasks,
        )?;
        let context = Context {
            in_flight: InFlight::default(),
            committer,
            pool: pool.clone(),
            in_flight_wait: settings.idempotency.in_flight_wait,
            tombstones: settings.idempotency.lifetime().tombstone,
        };
        let authenticator =
            Authenticator::new(settings.http.auth, settings.api_keys.cache_ttl, pool.clone());
        let api = Data::new(Api {
            authenticator,
            limits: Limits::new(&settings.limits),
            context,
            http: settings.http.clone(),
            charges: settings.charges.clone(),
            wait_max: settings.idempotency.wait_max,
            metrics,
        });
        let jobs = Jobs::new(settings, registry)?;
        let listener = TcpListener::bind(settings.http.listen)?;
        let addr = listener.local_addr()?;
        let draining = CancellationToken::new();
        let grace = settings.shutdown.grace;
        let server = edge::serve(listener, &settings.http, grace, &draining, move || {
            ActixApp::new()
                .app_data(api.clone())
                .wrap(from_fn(auth::authenticate))
                .wrap(from_fn(edge::guard))
                .wrap(from_fn(routes::measure))
                .configure(routes::configure)
        })?;
        let (database, accepting) =
            (readiness.condition("database"), readiness.condition("accepting"));
        Ok(Self { server, addr, draining, tasks, jobs, pool, database, accepting })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until the token is cancelled, then lets running requests end, and with them every
    /// charge that was accepted.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn run(self, token: CancellationToken) -> std::io::Result<()> {
        let Self { server, draining, tasks, jobs, pool, database, accepting, .. } = self;
        let watch = tokio::spawn(watch_database(pool, database));
        let jobs = tokio::spawn(jobs.run(token.clone()));
        accepting.set(true);
        let stopping = tokio::spawn(stop(server.handle(), draining, accepting, token));
        // The handlers hold the committer: when the server is gone, so is its queue's last sender.
        let ended = server.await;
        tasks.close();
        tasks.wait().await;
        watch.abort();
        jobs.abort();
        stopping.abort();
        ended
    }
}

async fn stop(
    server: ServerHandle,
    draining: CancellationToken,
    accepting: Condition,
    token: CancellationToken,
) {
    token.cancelled().await;
    accepting.set_false("the process is ending");
    draining.cancel();
    server.stop(true).await;
}

/// Ready means that a charge could be written: the database answers and its schema is new enough.
async fn watch_database(pool: Pool, condition: Condition) {
    loop {
        match store::migrate::is_current(&pool).await {
            Ok(true) => condition.set(true),
            Ok(false) => condition.set_false("the schema is too old: run `oncebox migrate`"),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "readiness check failed");
                condition.set_false("the database does not answer, or was never migrated");
            }
        }
        tokio::time::sleep(DATABASE_CHECK).await;
    }
}
