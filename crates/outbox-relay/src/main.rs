//! The outbox relay as a process: settings, telemetry, the admin port, the relay, and its drain.

use anyhow::Context as _;
use outbox_relay::{Service, Settings};
use settings::Cli;
use tokio_util::sync::CancellationToken;

const NAME: &str = "outbox-relay";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const ABOUT: &str = "Publishes the rows of the outbox to Kafka";

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let settings = Cli::<Settings>::new(NAME, VERSION, ABOUT).parse().settings;
    telemetry::logs::init(&settings.log)?;
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    tracing::info!(version = VERSION, librdkafka, "starting {NAME}");

    let shutdown = shutdown::Shutdown::on_signals();
    let registry = telemetry::registry(NAME, VERSION);
    let readiness = telemetry::Readiness::new();
    let admin = telemetry::admin::bind(&settings.admin, registry.clone(), readiness.clone())
        .context("the admin port could not be bound")?;
    let service = Service::build(settings, &registry, &readiness)?;
    tracing::info!(admin = %admin.addr(), "listening");

    // The admin port outlives the drain, to say why the relay is not ready.
    let admin_token = CancellationToken::new();
    let serving = tokio::spawn(admin.run(admin_token.clone()));
    let ended = service.run(shutdown.token()).await;
    admin_token.cancel();
    serving.await.context("the admin port panicked")?.context("the admin port failed")?;
    ended?;
    tracing::info!("ended");
    Ok(())
}
