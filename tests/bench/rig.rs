//! What is measured: one durable PostgreSQL, a database an arm, and each arm a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use harness::checkout;
use harness::eventually::eventually;
use harness::logs::Log;
use harness::postgres::connect;
use harness::process::{Process, Spec};
use harness::servers::{Given, Servers};
use harness::service::{Role, Service, Wiring};
use std::time::Duration;

use crate::report::Report;

/// How long an arm may take to listen.
const SOON: Duration = Duration::from_secs(20);

pub struct Rig {
    servers: Servers,
    logs: PathBuf,
    databases: usize,
}

/// Something that answers POST /charges.
pub struct Arm {
    pub addr: SocketAddr,
    pub database_url: String,
    kind: Kind,
}

enum Kind {
    Product(Box<Service>),
    Reference(Process),
}

impl Rig {
    pub async fn start(report: &Report) -> Result<Self> {
        let logs = checkout::root()?.join(".stack/bench");
        let servers = Servers::start(Given::from_environment(), None, &logs).await?;
        for line in &servers.chosen {
            report.say(&format!("     {line}"));
        }
        Ok(Self { servers, logs, databases: 0 })
    }

    pub async fn stop(self) -> Result<()> {
        self.servers.stop().await
    }

    /// A migrated database of its own.
    async fn database(&mut self) -> Result<String> {
        self.databases += 1;
        let name = format!("bench_{}", self.databases);
        let admin = connect(&self.servers.database_url.parse()?).await?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let (rest, _) =
            self.servers.database_url.rsplit_once('/').context("a URL without a path")?;
        let url = format!("{rest}/{name}");
        harness::stack::migrate(&self.wiring(&url, &[])).await?;
        Ok(url)
    }

    fn wiring(&self, database_url: &str, extra: &[(&str, &str)]) -> Wiring {
        let extra = extra
            .iter()
            .map(|(name, value)| (Role::ChargeApi, (*name).to_owned(), (*value).to_owned()));
        Wiring {
            database_url: database_url.to_owned(),
            kafka_brokers: String::new(),
            topic: String::new(),
            group: String::new(),
            logs: self.logs.clone(),
            extra: extra.collect(),
        }
    }

    /// The product, with these settings.
    pub async fn product(&mut self, name: &str, settings: &[(&str, &str)]) -> Result<Arm> {
        let database_url = self.database().await?;
        let wiring = self.wiring(&database_url, settings);
        let service = Service::start(Role::ChargeApi, name, &wiring).await?;
        service.ready().await?;
        let addr = service.http().context("invariant: an API has a port")?;
        Ok(Arm { addr, database_url, kind: Kind::Product(Box::new(service)) })
    }

    /// What the product is compared with; see `arm.rs`.
    pub async fn reference(&mut self, style: &str) -> Result<Arm> {
        let database_url = self.database().await?;
        let log = Log::new(&self.logs, &format!("arm-{style}"));
        let itself = std::env::current_exe()?.to_string_lossy().into_owned();
        let argv = vec![itself, "arm".into(), style.into(), database_url.clone()];
        let read_before = log.text().len();
        let process = Process::spawn(&Spec::server(style, argv, log.path().to_owned()))?;
        let addr = eventually(SOON, "the arm says where it listens", async || {
            Ok(log.text()[read_before..]
                .lines()
                .find_map(|line| line.strip_prefix("listening "))
                .and_then(|addr| addr.parse().ok()))
        })
        .await
        .with_context(|| log.tail())?;
        Ok(Arm { addr, database_url, kind: Kind::Reference(process) })
    }
}

impl Arm {
    pub fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Product(service) => service.pid(),
            Kind::Reference(process) => Some(process.pid()),
        }
    }

    /// So that no arm pays for the full pages of another.
    pub async fn checkpoint(&self) -> Result<()> {
        let client = connect(&self.database_url.parse()?).await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }
}
