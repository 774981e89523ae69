//! How a process ends: the first SIGTERM or SIGINT cancels one token, what runs gets a grace
//! period to finish, and a second signal ends the process at once.
//!
//! It does not decide in which order a service stops its parts: that is the service's `main`.

use std::{future::Future, io, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

settings::group! {
    /// How long the end of the process may take.
    pub struct ShutdownSettings {
        /// How long work in progress may go on after the first signal. Stay below the time after
        /// which the service manager kills (systemd 90s, Kubernetes 30s, Docker 10s).
        grace: Duration = "shutdown.grace", default "20s", "a duration from 0s to 1h",
            range Duration::ZERO..=Duration::from_secs(3600);
    }
}

/// The signals of this process, as a token.
#[derive(Debug)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Starts to listen for SIGTERM and SIGINT. Once a process; inside a tokio runtime.
    ///
    /// # Panics
    /// When the handlers cannot be installed: such a process could not be stopped in order.
    pub fn on_signals() -> Self {
        let signals = Signals::install().expect("invariant: a process may handle its own signals");
        let token = CancellationToken::new();
        tokio::spawn(end_on(signals, token.clone()));
        Self { token }
    }

    /// Cancelled by the first signal. Parts that must outlive others take a token of their own.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Waits for the first signal.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }
}

async fn end_on(mut signals: Signals, token: CancellationToken) {
    let (name, _) = signals.next().await;
    tracing::info!(signal = name, "shutting down; a second signal ends the process at once");
    token.cancel();
    let (name, number) = signals.next().await;
    tracing::error!(signal = name, "second signal: ending at once, work in progress is abandoned");
    exit(number);
}

#[expect(clippy::disallowed_methods, reason = "the operator asked twice; nothing may delay it")]
fn exit(signal: i32) -> ! {
    // The shell's convention for a process that a signal ended.
    std::process::exit(128 + signal)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
            _ = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
        }
    }
}

/// Work that did not finish within the grace period and was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: not finished within {grace:?}, abandoned")]
pub struct Abandoned {
    pub what: &'static str,
    pub grace: Duration,
}

/// Lets `work` finish within `grace`, else drops it and logs what was abandoned. Several parts
/// drain side by side: `tokio::join!(drain(grace, "requests", a), drain(grace, "relay", b))`.
pub async fn drain<T>(
    grace: Duration,
    what: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Abandoned> {
    tokio::time::timeout(grace, work).await.map_err(|_elapsed| {
        let abandoned = Abandoned { what, grace };
        tracing::error!(
            what,
            grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            "{abandoned}"
        );
        abandoned
    })
}
