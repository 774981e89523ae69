//! What is measured: one durable PostgreSQL, a database an arm, and each arm a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use harness::checkout;
use harness::eventually::eventually;
use harness::logs::Log;
use harness::postgres::{Postgres, connect};
use harness::process::{Process, Spec};
use harness::servers::{Given, Servers};
use harness::service::{Role, Service, Wiring};
use harness::topic::Topic;
use std::time::Duration;

use crate::machine::used;
use crate::report::Report;

/// How long an arm may take to listen.
const SOON: Duration = Duration::from_secs(20);

pub struct Rig {
    pub servers: Servers,
    logs: PathBuf,
    databases: usize,
    topics: usize,
}

/// Something that answers POST /charges.
pub struct Arm {
    pub addr: SocketAddr,
    pub database_url: String,
    postgres: Option<u32>,
    kind: Kind,
}

enum Kind {
    Product(Box<Service>),
    Reference(Process),
}

impl Rig {
    /// PostgreSQL, and Kafka where something is to be published.
    pub async fn start(report: &Report, kafka: bool) -> Result<Self> {
        let logs = checkout::root()?.join(".stack/bench");
        let brokers = kafka.then_some(1);
        let servers = Servers::start(Given::from_environment(), brokers, &logs).await?;
        for line in &servers.chosen {
            report.say(&format!("     {line}"));
        }
        Ok(Self { servers, logs, databases: 0, topics: 0 })
    }

    pub async fn stop(self) -> Result<()> {
        self.servers.stop().await
    }

    /// A migrated database of its own.
    pub async fn database(&mut self) -> Result<String> {
        self.databases += 1;
        let name = format!("bench_{}", self.databases);
        let admin = connect(&self.servers.database_url.parse()?).await?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let (rest, _) =
            self.servers.database_url.rsplit_once('/').context("a URL without a path")?;
        let url = format!("{rest}/{name}");
        harness::stack::migrate(&self.wiring(&url)).await?;
        Ok(url)
    }

    /// The postmaster, when it is ours.
    fn postgres(&self) -> Option<u32> {
        self.servers.postgres.as_ref().and_then(Postgres::pid)
    }

    /// A topic of its own.
    pub async fn topic(&mut self, partitions: i32) -> Result<Topic> {
        self.topics += 1;
        let name = format!("bench-{}-{}", std::process::id(), self.topics);
        Topic::create(&self.brokers()?, &name, partitions, 1).await
    }

    pub fn brokers(&self) -> Result<String> {
        self.servers.kafka_brokers.clone().context("invariant: started with Kafka")
    }

    fn wiring(&self, database_url: &str) -> Wiring {
        Wiring {
            database_url: database_url.to_owned(),
            kafka_brokers: String::new(),
            topic: String::new(),
            group: String::new(),
            logs: self.logs.clone(),
            extra: Vec::new(),
        }
    }

    /// A relay from this database to this topic.
    pub async fn relay(&self, name: &str, database_url: &str, topic: &Topic) -> Result<Service> {
        let wiring = Wiring {
            kafka_brokers: topic.brokers.clone(),
            topic: topic.name.clone(),
            ..self.wiring(database_url)
        };
        Service::start(Role::OutboxRelay, name, &wiring).await
    }

    /// A consumer of this topic in a group of its own, with a batch of its own if it is said.
    pub async fn consumer(
        &self,
        group: &str,
        database_url: &str,
        topic: &Topic,
        batch: Option<&str>,
    ) -> Result<Service> {
        let batch = batch.map(|batch| {
            (Role::ChargeConsumer, "ONCEBOX_CONSUMER_BATCH".to_owned(), batch.to_owned())
        });
        let wiring = Wiring {
            kafka_brokers: topic.brokers.clone(),
            topic: topic.name.clone(),
            group: format!("{}-{group}", topic.name),
            extra: batch.into_iter().collect(),
            ..self.wiring(database_url)
        };
        Service::start(Role::ChargeConsumer, &format!("bench-consumer-{group}"), &wiring).await
    }

    /// The product, with these settings.
    pub async fn product(&mut self, name: &str, settings: &[(&str, &str)]) -> Result<Arm> {
        let database_url = self.database().await?;
        let extra = settings
            .iter()
            .map(|(name, value)| (Role::ChargeApi, (*name).to_owned(), (*value).to_owned()));
        let wiring = Wiring { extra: extra.collect(), ..self.wiring(&database_url) };
        let service = Service::start(Role::ChargeApi, name, &wiring).await?;
        service.ready().await?;
        let addr = service.http().context("invariant: an API has a port")?;
        Ok(Arm {
            addr,
            database_url,
            postgres: self.postgres(),
            kind: Kind::Product(Box::new(service)),
        })
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
        Ok(Arm { addr, database_url, postgres: self.postgres(), kind: Kind::Reference(process) })
    }
}

impl Arm {
    pub fn pid(&self) -> Option<u32> {
        match &self.kind {
            Kind::Product(service) => service.pid(),
            Kind::Reference(process) => Some(process.pid()),
        }
    }

    /// What the database and the arm itself have used of the processor, in ticks of 10 ms.
    pub fn used(&self) -> Result<(u64, u64)> {
        let of = |pid: Option<u32>| pid.map_or(Ok(0), used);
        Ok((of(self.postgres)?, of(self.pid())?))
    }

    /// So that no arm pays for the full pages of another.
    pub async fn checkpoint(&self) -> Result<()> {
        let client = connect(&self.database_url.parse()?).await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }
}
