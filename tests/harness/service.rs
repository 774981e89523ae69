//! One process of Oncebox: how it is configured, started, hurt and started again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::checkout;
use crate::eventually::{SOON, eventually, eventually_true};
use crate::logs::Log;
use crate::metrics::Metrics;
use crate::process::{Process, Spec, take_ended};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    ChargeApi,
    OutboxRelay,
    ChargeConsumer,
}

impl Role {
    /// The name of its binary, and of the role in `stack.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChargeApi => "charge-api",
            Self::OutboxRelay => "outbox-relay",
            Self::ChargeConsumer => "charge-consumer",
        }
    }
}

/// What the processes of one stack share.
#[derive(Clone, Debug)]
pub struct Wiring {
    pub database_url: String,
    pub kafka_brokers: String,
    pub topic: String,
    pub group: String,
    pub logs: PathBuf,
    /// Settings of one role beyond those; the last one wins.
    pub extra: Vec<(Role, String, String)>,
}

impl Wiring {
    /// The environment of a process of this role, on ports of its own choice.
    pub fn environment(&self, role: Role) -> BTreeMap<String, String> {
        let mut env = vec![
            ("DATABASE_URL", self.database_url.as_str()),
            ("ONCEBOX_ADMIN_LISTEN", "127.0.0.1:0"),
            ("ONCEBOX_LOG_FORMAT", "json"),
        ];
        match role {
            Role::ChargeApi => {
                env.extend([("ONCEBOX_HTTP_LISTEN", "127.0.0.1:0"), ("ONCEBOX_AUTH", "disabled")]);
            }
            Role::OutboxRelay => {
                env.extend([
                    ("KAFKA_BROKERS", self.kafka_brokers.as_str()),
                    ("ONCEBOX_KAFKA_TOPIC", &self.topic),
                ]);
            }
            Role::ChargeConsumer => {
                env.extend([
                    ("KAFKA_BROKERS", self.kafka_brokers.as_str()),
                    ("ONCEBOX_KAFKA_TOPIC", &self.topic),
                    ("ONCEBOX_KAFKA_GROUP", &self.group),
                ]);
            }
        }
        let extra = self.extra.iter().filter(|(of, _, _)| *of == role);
        let extra = extra.map(|(_, key, value)| (key.as_str(), value.as_str()));
        env.into_iter().chain(extra).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }
}

pub struct Service {
    pub role: Role,
    spec: Spec,
    log: Log,
    http: Option<SocketAddr>,
    admin: SocketAddr,
    process: Option<Process>,
}

impl Service {
    /// Starts it on ports of its own choice and waits until it has said which.
    pub async fn start(role: Role, name: &str, wiring: &Wiring) -> Result<Self> {
        let binary = checkout::binary(role.as_str())?.to_string_lossy().into_owned();
        let log = Log::new(&wiring.logs, name);
        let mut spec = Spec::server(name, vec![binary], log.path().to_owned());
        spec.env = wiring.environment(role);
        let admin = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { role, spec, log, http: None, admin, process: None };
        service.start_again().await?;
        Ok(service)
    }

    /// Starts it after its end: as before, on the same ports.
    pub async fn start_again(&mut self) -> Result<()> {
        let read_before = self.log.text().len();
        let mut process = Process::spawn(&self.spec)?;
        let what = format!("{} says where it listens", self.spec.name);
        let found = eventually(SOON, &what, async || {
            // The lines of an earlier start name earlier ports.
            let found = listening(&self.log.text()[read_before..]);
            match process.exited() {
                Some(status) if found.is_none() => Ok(Some(Err(status))),
                _ => Ok(found.map(Ok)),
            }
        });
        let line = match found.await.with_context(|| self.log.tail())? {
            Ok(line) => line,
            Err(status) => bail!("{} ended with {status}\n{}", self.spec.name, self.log.tail()),
        };
        self.process = Some(process);
        self.admin = address(&line, "admin")?;
        self.spec.env.insert("ONCEBOX_ADMIN_LISTEN".to_owned(), self.admin.to_string());
        if self.role == Role::ChargeApi {
            let http = address(&line, "http")?;
            self.http = Some(http);
            self.spec.env.insert("ONCEBOX_HTTP_LISTEN".to_owned(), http.to_string());
        }
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    pub async fn ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.admin_url());
        let what = format!("{} is ready", self.spec.name);
        let ready = eventually_true(SOON, &what, async || {
            let response = reqwest::get(&url).await?;
            let status = response.status();
            anyhow::ensure!(status.is_success(), "{status}: {}", response.text().await?.trim());
            Ok(true)
        });
        ready.await.with_context(|| self.log.tail())
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Address of the public port; the API alone has one.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Base URL of the public port.
    pub fn url(&self) -> Option<String> {
        self.http.map(|address| format!("http://{address}"))
    }

    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn argv(&self) -> &[String] {
        &self.spec.argv
    }

    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.spec.env
    }

    pub async fn metrics(&self) -> Result<Metrics> {
        Metrics::scrape(&self.admin_url()).await
    }

    /// One sample, or the sum of all that have these labels.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let found = self.metrics().await?.sum(name, labels);
        found.with_context(|| format!("{} has no metric {name} with {labels:?}", self.spec.name))
    }

    /// Its pid and status, once, if it has ended without being asked to.
    pub fn take_ended(&mut self) -> Option<(u32, ExitStatus)> {
        take_ended(&mut self.process)
    }

    /// SIGKILL, and the wait for it to be gone.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill().map(|_| ()))
    }

    /// SIGTERM, and how it ended.
    pub async fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        let mut process = self.process.take().context("it is not running")?;
        process.stop(grace).await
    }

    /// SIGTERM without a wait, so that several can end side by side.
    pub fn ask_to_end(&mut self) {
        if let Some(process) = &mut self.process {
            process.ask_to_end();
        }
    }

    /// SIGSTOP: it keeps its connections and does nothing.
    pub fn pause(&mut self) -> Result<()> {
        self.process.as_mut().context("it is not running")?.signal(Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn resume(&mut self) -> Result<()> {
        self.process.as_mut().context("it is not running")?.signal(Signal::SIGCONT)
    }
}

/// The last log line that tells the addresses.
fn listening(log: &str) -> Option<Value> {
    let lines = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.into_iter().find(|line| line["message"] == "listening")
}

fn address(line: &Value, field: &str) -> Result<SocketAddr> {
    let text = line[field].as_str().with_context(|| format!("no `{field}` in {line}"))?;
    text.parse().with_context(|| format!("`{field}` in {line}"))
}
