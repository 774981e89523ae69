//! The charge-api process.

use anyhow::Context as _;
use charge_api::{App, Settings};
use shutdown::Shutdown;
use telemetry::Readiness;
use tokio_util::sync::CancellationToken;

const NAME: &str = env!("CARGO_PKG_NAME");
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let about = "Creates charges, each once: POST /charges under an Idempotency-Key";
    let settings = settings::Cli::<Settings>::new(NAME, VERSION, about).parse().settings;
    telemetry::logs::init(&settings.log)?;
    tracing::info!(version = VERSION, "starting {NAME}");

    let shutdown = Shutdown::on_signals();
    let readiness = Readiness::new();
    let registry = telemetry::registry(NAME, VERSION);
    let app = App::bind(&settings, &registry, &readiness)
        .with_context(|| format!("could not listen on http.listen = {}", settings.http.listen))?;
    let admin = telemetry::admin::bind(&settings.admin, registry, readiness)
        .with_context(|| format!("could not listen on admin.listen = {}", settings.admin.listen))?;
    tracing::info!(http = %app.addr(), admin = %admin.addr(), "listening");

    let admin_end = CancellationToken::new();
    let admin = tokio::spawn(admin.run(admin_end.clone()));
    let token = shutdown.token();
    let mut app = std::pin::pin!(app.run(token.clone()));
    tokio::select! {
        ended = &mut app => ended?,
        () = token.cancelled() => {
            // An abandoned charge is safe: its client got no answer and sends its key again.
            if let Ok(ended) = shutdown::drain(settings.shutdown.grace, "requests", app).await {
                ended?;
            }
        }
    }
    admin_end.cancel();
    admin.await??;
    tracing::info!("ended");
    Ok(())
}
