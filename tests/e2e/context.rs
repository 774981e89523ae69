//! What a test gets: a place of its own on shared servers, and a report when it fails.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use harness::answers::Answers;
use harness::checkout;
use harness::eventually::SOON;
use harness::ledger::{self, Verdict};
use harness::servers::{Given, Servers};
use harness::service::{Role, Wiring};
use harness::stack::{Shape, Stack};
use harness::topic::Topic;
use libtest_mimic::Failed;
use pg_test::TestDatabase;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex as AsyncMutex;

/// Several, so that the aggregates of a test do not share one.
const PARTITIONS: i32 = 3;

/// A test holds statements for as long as it needs; that must not become a time-out on a slow day.
const PATIENCE: [(&str, &str); 2] =
    [("ONCEBOX_DATABASE_LOCK_TIMEOUT", "60s"), ("ONCEBOX_DATABASE_STATEMENT_TIMEOUT", "120s")];

/// What all tests of a run share.
pub struct Shared {
    runtime: Runtime,
    servers: AsyncMutex<Option<Servers>>,
    logs: PathBuf,
}

impl Shared {
    pub fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let root = checkout::root().expect("the tests run inside a checkout");
        Self {
            runtime: runtime.expect("a runtime"),
            servers: AsyncMutex::new(None),
            logs: root.join(".stack/e2e").join(std::process::id().to_string()),
        }
    }

    pub fn stop(&self, failed: bool) {
        if let Some(servers) = self.runtime.block_on(self.servers.lock()).take() {
            let _they_are_killed_anyway = self.runtime.block_on(servers.stop());
        }
        if !failed {
            let _nobody_reads_them = fs::remove_dir_all(&self.logs);
        }
    }

    /// Started by the first test that asks.
    async fn addresses(&self) -> Result<(String, String)> {
        let mut servers = self.servers.lock().await;
        if servers.is_none() {
            let logs = self.logs.join("servers");
            *servers = Some(Servers::start(Given::from_environment(), Some(1), &logs).await?);
        }
        let servers = servers.as_ref().expect("invariant: started above");
        let brokers = servers.kafka_brokers.clone().context("invariant: asked for")?;
        Ok((servers.database_url.clone(), brokers))
    }
}

/// One test's own.
pub struct Context {
    shared: Arc<Shared>,
    name: String,
    pub logs: PathBuf,
    databases: Mutex<Vec<TestDatabase>>,
    topics: Mutex<Vec<Topic>>,
}

impl Context {
    /// A database, a topic and a group on the shared servers.
    pub async fn wiring(&self) -> Result<Wiring> {
        let (database, brokers) = self.shared.addresses().await?;
        self.wiring_on(&database, &brokers, 1).await
    }

    /// The same on servers of the test's own.
    pub async fn wiring_on(&self, server: &str, brokers: &str, replicas: i32) -> Result<Wiring> {
        let database = pg_test::database_on(server, &self.name).await;
        let (database_url, unique) = (database.url(), database.name().to_owned());
        self.databases.lock().expect("no test panics here").push(database);
        let name = format!("charges.events.{unique}");
        let topic = Topic::create(brokers, &name, PARTITIONS, replicas).await?;
        // A broker of the test's own takes its topics along; asking it afterwards is a long wait.
        if self.shared.addresses().await?.1 == brokers {
            self.topics.lock().expect("no test panics here").push(topic);
        }
        let mut extra = vec![(Role::ChargeApi, "ONCEBOX_HTTP_DEADLINE".into(), "120s".into())];
        for role in [Role::ChargeApi, Role::OutboxRelay, Role::ChargeConsumer] {
            extra.extend(PATIENCE.map(|(key, value)| (role, key.to_owned(), value.to_owned())));
        }
        Ok(Wiring {
            database_url,
            kafka_brokers: brokers.to_owned(),
            topic: name,
            group: format!("group.{unique}"),
            logs: self.logs.clone(),
            extra,
        })
    }

    pub async fn stack(&self, shape: Shape) -> Result<Stack> {
        Stack::start(self.wiring().await?, shape).await
    }

    /// The topic of a stack, for reading.
    pub fn topic(&self, wiring: &Wiring) -> Topic {
        Topic {
            brokers: wiring.kafka_brokers.clone(),
            name: wiring.topic.clone(),
            partitions: PARTITIONS,
        }
    }

    /// The topic that the dead letters of this wiring go to; it is not there before.
    pub async fn dead_letter_topic(&self, wiring: &Wiring) -> Result<Topic> {
        let name = dead_letter_topic_name(wiring);
        let topic = Topic::create(&wiring.kafka_brokers, &name, 1, 1).await?;
        self.topics.lock().expect("no test panics here").push(topic.clone());
        Ok(topic)
    }

    /// Waits until everything is published and applied, and demands that all accounts agree.
    pub async fn settle(&self, wiring: &Wiring, answers: &Answers) -> Result<Verdict> {
        ledger::drained(&wiring.database_url, SOON).await?;
        let records = self.topic(wiring).read_all().await?;
        let verdict = ledger::check(&wiring.database_url, &records, answers).await?;
        verdict.require()?;
        Ok(verdict)
    }

    async fn end(self, failed: bool) -> Result<()> {
        let topics = self.topics.into_inner().expect("no test panics here");
        let databases = self.databases.into_inner().expect("no test panics here");
        if failed {
            databases.into_iter().for_each(|mut database| database.keep());
            return Ok(());
        }
        for topic in topics {
            let _nobody_reads_it_any_more = topic.delete().await;
        }
        // Their destructors wait, which would block a thread of the runtime.
        tokio::task::spawn_blocking(move || drop(databases)).await?;
        fs::remove_dir_all(&self.logs).context("removing the logs of a passed test")
    }
}

pub fn dead_letter_topic_name(wiring: &Wiring) -> String {
    format!("{}.dead", wiring.topic)
}

type Test<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Runs one test to its end, whatever that is.
pub fn run(
    shared: &Arc<Shared>,
    name: &str,
    test: impl for<'a> FnOnce(&'a Context) -> Test<'a>,
) -> Result<(), Failed> {
    let logs = shared.logs.join(name.replace("::", "."));
    fs::create_dir_all(&logs)?;
    let context = Context {
        shared: Arc::clone(shared),
        name: name.to_owned(),
        logs: logs.clone(),
        databases: Mutex::default(),
        topics: Mutex::default(),
    };
    // The context is whole after a panic: its members are only added to.
    let outcome = catch_unwind(AssertUnwindSafe(|| shared.runtime.block_on(test(&context))));
    let failure = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => Some(message(&*panic)),
    };
    let ended = shared.runtime.block_on(context.end(failure.is_some()));
    match failure {
        Some(reason) => Err(format!("{reason}\n{}", kept(&logs)).into()),
        None => ended.map_err(|error| format!("{error:#}").into()),
    }
}

fn kept(logs: &Path) -> String {
    format!("the logs of its processes are in {}", logs.display())
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The tests of a module under its name.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        pub fn trials(
            shared: &std::sync::Arc<$crate::context::Shared>,
        ) -> Vec<libtest_mimic::Trial> {
            let module = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$({
                let name = format!("{module}::{}", stringify!($test));
                let shared = std::sync::Arc::clone(shared);
                libtest_mimic::Trial::test(name.clone(), move || {
                    $crate::context::run(&shared, &name, |context| Box::pin($test(context)))
                })
            }),+]
        }
    };
}
pub(crate) use tests;
