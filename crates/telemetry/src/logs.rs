//! Log lines: one line an event, JSON unless a person is looking. On stdout, but for a tool whose
//! stdout is its answer. A panic is an event like any other.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal},
    panic::PanicHookInfo,
};

use tracing_subscriber::{
    EnvFilter, fmt::MakeWriter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

settings::choice! {
    /// How log lines look.
    pub enum LogFormat {
        /// Pretty on a terminal, JSON otherwise.
        Auto = "auto",
        Json = "json",
        Pretty = "pretty",
    }
}

settings::group! {
    /// Log lines.
    pub struct LogSettings {
        /// Which events are logged: a level, or levels by module.
        level: String = "log.level", default "info",
            "error, warn, info, debug or trace, or directives such as info,outbox_relay=debug",
            check valid_filter;
        /// How log lines look; auto is pretty on a terminal and JSON otherwise.
        format: LogFormat = "log.format", default "auto", "auto, json or pretty";
    }
}

/// actix announces every server and worker at `info`; our own line says more. Stated first, so
/// that `log.level` can still say otherwise.
const QUIET: &str = "actix_server=warn,actix_web=warn";

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter is wrong")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    #[error("logging was started before")]
    Started(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts logging, also that of crates that use `log`, and of panics. Once a process.
pub fn init(settings: &LogSettings) -> Result<(), Error> {
    start(settings, io::stdout().is_terminal(), io::stdout)
}

/// [`init`] for a tool: its stdout is for its answer.
pub fn init_on_stderr(settings: &LogSettings) -> Result<(), Error> {
    start(settings, io::stderr().is_terminal(), io::stderr)
}

fn start<W>(settings: &LogSettings, terminal: bool, writer: W) -> Result<(), Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(&settings.level).map_err(Error::Filter)?;
    let registry = tracing_subscriber::registry().with(filter);
    let json = match settings.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !terminal,
    };
    if json {
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).json();
        registry.with(lines.flatten_event(true).with_span_list(false)).try_init()
    } else {
        let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(terminal);
        registry.with(lines).try_init()
    }
    .map_err(Error::Started)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn filter(level: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    EnvFilter::try_new(format!("{QUIET},{level}"))
}

#[expect(clippy::ptr_arg, reason = "the settings macro hands over the field as it is")]
fn valid_filter(level: &String) -> Result<(), String> {
    filter(level).map(drop).map_err(|_| "is no log filter".into())
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let location = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    tracing::error!(
        panic.location = location,
        panic.thread = std::thread::current().name(),
        panic.backtrace = (backtrace.status() == BacktraceStatus::Captured)
            .then(|| tracing::field::display(backtrace)),
        "panicked: {}",
        text.unwrap_or("(no text)")
    );
}
