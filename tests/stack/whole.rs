//! The whole local stack: servers, schema, topic and every process of Oncebox.

use std::path::Path;

use anyhow::{Context, Result};
use harness::servers::{Given, Servers};
use harness::service::Wiring;
use harness::stack::{Shape, Stack, migrate};
use harness::topic::Topic;
use pg_test::TestDatabase;
use uuid::Uuid;

const TOPIC: &str = "charges.events";
const GROUP: &str = "charge-consumer";
/// More than the consumers of any try-out, so that each has work.
const PARTITIONS: i32 = 6;

/// Where the data of a run goes when its servers are not private.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// With whatever is there.
    Shared,
    /// In a database, a topic and a group of the run's own: its accounts must add up.
    Apart,
}

pub struct Whole {
    // Dropped in this order: clients before their servers.
    pub stack: Stack,
    pub topic: Topic,
    _database: Option<TestDatabase>,
    pub servers: Servers,
}

impl Whole {
    pub async fn start(shape: Shape, brokers: usize, logs: &Path, data: Data) -> Result<Self> {
        let servers = Servers::start(Given::from_environment(), Some(brokers), logs).await?;
        let kafka_brokers = servers.kafka_brokers.clone().context("invariant: asked for")?;
        // As many copies as the brokers can hold, three at most; -1 leaves it to a broker of others.
        let replicas = match &servers.kafka {
            Some(kafka) => i32::try_from(kafka.size().min(3))?,
            None => -1,
        };
        let suffix = match (&servers.kafka, data) {
            (None, Data::Apart) => format!(".{}", Uuid::new_v4().simple()),
            _ => String::new(),
        };
        let database = match (&servers.postgres, data) {
            (None, Data::Apart) => Some(pg_test::database_on(&servers.database_url, "demo").await),
            _ => None,
        };
        let name = format!("{TOPIC}{suffix}");
        let topic = Topic::create(&kafka_brokers, &name, PARTITIONS, replicas).await?;
        let url = database.as_ref().map(TestDatabase::url);
        let wiring = Wiring {
            database_url: url.unwrap_or_else(|| servers.database_url.clone()),
            kafka_brokers,
            topic: name,
            group: format!("{GROUP}{suffix}"),
            logs: logs.to_owned(),
            extra: Vec::new(),
        };
        migrate(&wiring).await?;
        let stack = Stack::start(wiring, shape).await?;
        Ok(Self { stack, topic, _database: database, servers })
    }

    pub fn database_url(&self) -> &str {
        &self.stack.wiring.database_url
    }

    /// Services first: their last work needs the servers.
    pub async fn stop(self) -> Result<()> {
        let stopped = self.stack.stop().await;
        self.servers.stop().await?;
        stopped
    }

    /// A line for each process that has ended without being asked to; each is told once.
    pub fn newly_ended(&mut self) -> Vec<String> {
        let line = |name: &str, pid: u32, status| format!("{name} (pid {pid}) ended: {status}");
        let mut lines = Vec::new();
        for service in self.stack.services_mut() {
            let ended = service.take_ended();
            lines.extend(ended.map(|(pid, status)| line(service.name(), pid, status)));
        }
        let postgres = self.servers.postgres.as_mut().and_then(|server| server.take_ended());
        lines.extend(postgres.map(|(pid, status)| line("postgres", pid, status)));
        if let Some(kafka) = &mut self.servers.kafka {
            lines.extend(kafka.take_ended().map(|(name, pid, status)| line(name, pid, status)));
        }
        lines
    }
}
