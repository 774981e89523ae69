//! The consumer as a process: settings, telemetry, admin port, then the loop until a signal.

use std::process::ExitCode;

use anyhow::Context as _;
use charge_consumer::consumer::{self, NAME};
use charge_consumer::settings::Settings;
use settings::Cli;
use shutdown::Shutdown;
use telemetry::{Readiness, admin, logs};
use tokio_util::sync::CancellationToken;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ABOUT: &str = "Reads charge events from Kafka and gives each its effect once";

// One thread polls and applies, the other answers the admin port and the driver of the database.
#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let settings = Cli::<Settings>::new(NAME, VERSION, ABOUT).parse().settings;
    logs::init(&settings.log)?;
    let librdkafka = inbox::librdkafka_version();
    tracing::info!(version = VERSION, librdkafka, "{NAME} starts");

    let shutdown = Shutdown::on_signals();
    let registry = telemetry::registry(NAME, VERSION);
    let readiness = Readiness::new();
    let service = consumer::build(&settings, &registry, &readiness)?;
    let admin = admin::bind(&settings.admin, registry, readiness)
        .with_context(|| format!("could not listen on {}", settings.admin.listen))?;
    tracing::info!(admin = %admin.addr(), "listening");

    // Served until the very end, so that it says why the process ends.
    let admin_stop = CancellationToken::new();
    let admin = tokio::spawn(admin.run(admin_stop.clone()));
    let mut running = tokio::spawn(service.run(shutdown.token()));
    let ended = tokio::select! {
        ended = &mut running => Some(ended),
        () = shutdown.requested() => {
            shutdown::drain(settings.shutdown.grace, "the running batches", &mut running).await.ok()
        }
    };
    admin_stop.cancel();
    admin.await??;
    match ended {
        Some(ended) => ended??,
        None => return Ok(ExitCode::FAILURE),
    }
    tracing::info!("{NAME} has ended");
    Ok(ExitCode::SUCCESS)
}
