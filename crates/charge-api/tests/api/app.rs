//! The API in the runtime of the test, on a port of the kernel's choice and a database of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use charge_api::{App, Settings};
use pg_test::TestDatabase;
use prometheus::{Encoder as _, Registry, TextEncoder};
use telemetry::Readiness;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::raw::{Raw, Response};
use crate::request::Request;

/// How long anything may take on a busy machine before the test fails. Nothing waits it out.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestApp {
    pub addr: SocketAddr,
    pub database: Arc<TestDatabase>,
    registry: Registry,
    end: CancellationToken,
    running: JoinHandle<std::io::Result<()>>,
}

impl TestApp {
    /// With these environment variables, on a new database.
    pub async fn with(settings: &[(&str, &str)]) -> Self {
        Self::on(Arc::new(pg_test::database().await), settings).await
    }

    /// On a database that others use too.
    pub async fn on(database: Arc<TestDatabase>, settings: &[(&str, &str)]) -> Self {
        let url = database.url();
        let own = [
            ("DATABASE_URL", url.as_str()),
            ("ONCEBOX_AUTH", "disabled"),
            ("ONCEBOX_HTTP_LISTEN", "127.0.0.1:0"),
        ];
        // The first of two with one name counts: a test may choose another URL.
        let mut all = settings.to_vec();
        all.extend(own.iter().filter(|(name, _)| !settings.iter().any(|(n, _)| n == name)));
        let settings = settings::load::<Settings>(None, &all).unwrap();
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let app = App::bind(&settings, &registry, &readiness).unwrap();
        let (addr, end) = (app.addr(), CancellationToken::new());
        let running = tokio::spawn(app.run(end.clone()));
        Self { addr, database, registry, end, running }
    }

    /// Ends as a process does after SIGTERM.
    pub async fn stop(self) {
        self.end.cancel();
        let ended = within("the app ends", self.running).await;
        ended.unwrap().unwrap();
    }

    pub fn begin_to_stop(&self) {
        self.end.cancel();
    }

    pub async fn connect(&self) -> Raw {
        Raw::connect(self.addr).await
    }

    /// Sends the request over a connection of its own.
    pub async fn send(&self, request: &Request) -> Response {
        let mut raw = self.connect().await;
        raw.send(&request.bytes()).await;
        raw.response().await
    }

    /// Sends bytes over a connection of their own; the answer must be followed by its end.
    pub async fn send_last(&self, bytes: &[u8]) -> Response {
        let mut raw = self.connect().await;
        raw.send(bytes).await;
        let response = raw.response().await;
        raw.closed().await;
        response
    }

    pub async fn client(&self) -> Client {
        self.database.client().await
    }

    /// Keys, charges, events.
    pub async fn rows(&self) -> [i64; 3] {
        rows(&self.client().await).await
    }

    /// The value of one series, by its name with its labels.
    pub fn metric(&self, series: &str) -> f64 {
        self.series(series).unwrap_or_else(|| panic!("no series {series}"))
    }

    /// The same for one that is there only once it has been counted.
    pub fn series(&self, series: &str) -> Option<f64> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().unwrap())
    }

    pub fn outcomes(&self, outcome: &str) -> f64 {
        let labels = format!("endpoint=\"POST /charges\",outcome=\"{outcome}\"");
        self.metric(&format!("charge_api_idempotency_outcomes_total{{{labels}}}"))
    }
}

/// A contract: what it asks of an app of its own.
pub type Contract = for<'a> fn(&'a TestApp) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs a contract against an app with these settings.
pub fn hold(batch_max: &str, settings: &[(&str, &str)], contract: Contract) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings = [settings, &[("ONCEBOX_BATCH_MAX", batch_max)]].concat();
    runtime.block_on(async {
        let app = TestApp::with(&settings).await;
        contract(&app).await;
        app.stop().await;
    });
}

pub async fn rows(client: &Client) -> [i64; 3] {
    let count = "SELECT (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM charges),
                        (SELECT count(*) FROM outbox)";
    let row = client.query_one(count, &[]).await.unwrap();
    [row.get(0), row.get(1), row.get(2)]
}

/// Fails the test when `future` takes for ever.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Asks until the answer is there.
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}
