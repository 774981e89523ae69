//! The admin port: `/metrics`, `/livez`, `/readyz`. It has no authentication and listens on
//! loopback unless told otherwise; it stays apart from the service's own port so that neither
//! load nor access rules of one touch the other.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use actix_web::{App, HttpResponse, HttpServer, dev::Server, http::header, web};
use prometheus::{Registry, TextEncoder};
use tokio_util::sync::CancellationToken;

use crate::Readiness;

settings::group! {
    /// The port for metrics and health.
    pub struct AdminSettings {
        /// Address of the admin port (/metrics, /livez, /readyz). It has no authentication.
        listen: SocketAddr = "admin.listen", default "127.0.0.1:9464",
            "an IP address and port (0: any free port)";
    }
}

/// How long a scrape may still take once the port is told to stop.
const SHUTDOWN_SECONDS: u64 = 1;
/// A scraper, a probe and a person or two; more is somebody's mistake.
const CONNECTIONS_MAX: usize = 64;

/// The bound port, which answers once `run` is polled.
pub struct Admin {
    addr: SocketAddr,
    server: Server,
}

/// Binds the port, so that its address is known before anything else starts. Inside a tokio
/// runtime.
pub fn bind(
    settings: &AdminSettings,
    registry: Registry,
    readiness: Readiness,
) -> io::Result<Admin> {
    let listener = TcpListener::bind(settings.listen)?;
    let addr = listener.local_addr()?;
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(registry.clone()))
            .app_data(web::Data::new(readiness.clone()))
            .service(web::resource("/metrics").get(metrics).head(metrics))
            .service(web::resource("/livez").get(livez).head(livez))
            .service(web::resource("/readyz").get(readyz).head(readyz))
    })
    .workers(1)
    .worker_max_blocking_threads(1)
    .max_connections(CONNECTIONS_MAX)
    .disable_signals()
    .shutdown_timeout(SHUTDOWN_SECONDS)
    .listen(listener)?
    .run();
    Ok(Admin { addr, server })
}

impl Admin {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until the token is cancelled. Give it a token that outlives the drain, so that
    /// `/readyz` says why while the service ends.
    pub async fn run(mut self, token: CancellationToken) -> io::Result<()> {
        tokio::select! {
            ended = &mut self.server => return ended,
            () = token.cancelled() => {}
        }
        let handle = self.server.handle();
        let (_, ended) = tokio::join!(handle.stop(true), self.server);
        ended
    }
}

async fn metrics(registry: web::Data<Registry>) -> HttpResponse {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => HttpResponse::Ok()
            .insert_header((header::CONTENT_TYPE, prometheus::TEXT_FORMAT))
            .body(text),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "metrics cannot be encoded");
            HttpResponse::InternalServerError().finish()
        }
    }
}

/// Says only that the process answers: a dependency that fails is no reason to restart it.
async fn livez() -> &'static str {
    "ok"
}

async fn readyz(readiness: web::Data<Readiness>) -> HttpResponse {
    let failing = readiness.failing();
    if failing.is_empty() {
        return HttpResponse::Ok().body("ok");
    }
    let failing: Vec<_> = failing
        .into_iter()
        .map(|(condition, reason)| serde_json::json!({ "condition": condition, "reason": reason }))
        .collect();
    HttpResponse::ServiceUnavailable()
        .json(serde_json::json!({ "ready": false, "failing": failing }))
}
