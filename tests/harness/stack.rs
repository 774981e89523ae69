//! The processes of Oncebox over one database, one topic and one consumer group.
//!
//! Servers are not started here: many stacks can share them, each with a database of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;

use crate::checkout;
use crate::logs::Log;
use crate::process::{Process, Spec};
use crate::service::{Role, Service, Wiring};

/// A service's own grace period is shorter.
pub const STOP_LIMIT: Duration = Duration::from_secs(30);
/// For a schema on an empty database.
const MIGRATE_LIMIT: Duration = Duration::from_secs(60);

/// How many processes of each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub apis: usize,
    pub relays: usize,
    pub consumers: usize,
}

impl Shape {
    /// One of each.
    pub const ONE: Self = Self { apis: 1, relays: 1, consumers: 1 };
    /// Two of each.
    pub const TWO: Self = Self { apis: 2, relays: 2, consumers: 2 };
    /// An API whose events stay where they are.
    pub const API: Self = Self { apis: 1, relays: 0, consumers: 0 };
}

pub struct Stack {
    pub wiring: Wiring,
    pub apis: Vec<Service>,
    pub relays: Vec<Service>,
    pub consumers: Vec<Service>,
}

impl Stack {
    /// Starts all side by side and waits until each is ready.
    pub async fn start(wiring: Wiring, shape: Shape) -> Result<Self> {
        std::fs::create_dir_all(&wiring.logs)?;
        let (apis, relays, consumers) = tokio::try_join!(
            start_ready(&wiring, Role::ChargeApi, shape.apis),
            start_ready(&wiring, Role::OutboxRelay, shape.relays),
            start_ready(&wiring, Role::ChargeConsumer, shape.consumers),
        )?;
        Ok(Self { wiring, apis, relays, consumers })
    }

    /// One more process of a role; it is not waited for, since its servers may be down.
    pub async fn add(&mut self, role: Role) -> Result<&mut Service> {
        let services = match role {
            Role::ChargeApi => &mut self.apis,
            Role::OutboxRelay => &mut self.relays,
            Role::ChargeConsumer => &mut self.consumers,
        };
        let name = format!("{}-{}", role.as_str(), services.len() + 1);
        services.push(Service::start(role, &name, &self.wiring).await?);
        Ok(services.last_mut().expect("invariant: just pushed"))
    }

    /// Base URL of an API, counted from 0.
    pub fn api(&self, index: usize) -> String {
        self.apis[index].url().expect("invariant: an API has a public port")
    }

    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.apis.iter().chain(&self.relays).chain(&self.consumers)
    }

    pub fn services_mut(&mut self) -> impl Iterator<Item = &mut Service> {
        self.apis.iter_mut().chain(&mut self.relays).chain(&mut self.consumers)
    }

    /// SIGTERM to all; each must drain and end well.
    pub async fn stop(mut self) -> Result<()> {
        self.services_mut().for_each(Service::ask_to_end);
        for service in self.services_mut().filter(|service| service.pid().is_some()) {
            let status = service.stop(STOP_LIMIT).await?;
            let name = service.name();
            ensure!(status.success(), "{name} ended with {status}\n{}", service.log().tail());
        }
        Ok(())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // All at once; their own destructors wait.
        self.services_mut().for_each(Service::ask_to_end);
    }
}

async fn start_ready(wiring: &Wiring, role: Role, count: usize) -> Result<Vec<Service>> {
    let starts = (1..=count).map(async |number| {
        let service = Service::start(role, &format!("{}-{number}", role.as_str()), wiring).await?;
        service.ready().await?;
        Ok::<_, anyhow::Error>(service)
    });
    try_join_all(starts).await
}

/// Brings the database to the schema of the binaries, the way an operator does.
pub async fn migrate(wiring: &Wiring) -> Result<()> {
    std::fs::create_dir_all(&wiring.logs)?;
    let log = Log::new(&wiring.logs, "migrate");
    let binary = checkout::binary("oncebox")?.to_string_lossy().into_owned();
    let argv = vec![binary, "migrate".to_owned()];
    let mut spec = Spec::server("migrate", argv, log.path().to_owned());
    spec.env = wiring.environment(Role::ChargeApi);
    let status = Process::spawn(&spec)?.wait(MIGRATE_LIMIT).await.context("migrate hangs")?;
    ensure!(status.success(), "migrate ended with {status}\n{}", log.tail());
    Ok(())
}
