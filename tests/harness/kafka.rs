//! A private Apache Kafka cluster in KRaft mode: one node, or several with real replication.
//!
//! Topics and clients are in `topic`; here is only what runs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::future::try_join_all;
use nix::sys::signal::Signal;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::checkout;
use crate::kafka_jars::Jars;
use crate::kafka_security::Security;
use crate::logs::Log;
use crate::ports;
use crate::process::{Process, Spec, take_ended};

/// Three nodes on two busy cores took half of this.
const START_LIMIT: Duration = Duration::from_secs(90);
/// A metadata request that is not answered by then is sent anew.
const METADATA_LIMIT: Duration = Duration::from_secs(2);
/// A clean stop hands its partitions over and flushes; the last node has nobody to hand them to.
const STOP_LIMIT: Duration = Duration::from_secs(20);

pub struct Kafka {
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    port: u16,
    secured_port: u16,
    argv: Vec<String>,
    log: Log,
    process: Option<Process>,
}

impl Kafka {
    /// Formats and starts a cluster of `size` nodes below `home`, with a secured listener beside
    /// the plain one if there is something to secure it with.
    pub async fn start(
        jars: &Jars,
        home: &Path,
        logs: &Path,
        size: usize,
        security: Option<&Security>,
    ) -> Result<Self> {
        ensure!((1..=9).contains(&size), "a cluster of {size} brokers: 1 to 9 are possible");
        for attempt in 1.. {
            let mut kafka = Self::prepare(jars, home, logs, size, security).await?;
            match kafka.start_again().await {
                Ok(()) => return Ok(kafka),
                Err(_) if attempt < ports::ATTEMPTS && kafka.lost_a_port() => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// `host:port` of every node, for `bootstrap.servers`.
    pub fn brokers(&self) -> String {
        self.addresses(|node| node.port)
    }

    /// The same of the secured listener.
    pub fn secured_brokers(&self) -> String {
        self.addresses(|node| node.secured_port)
    }

    fn addresses(&self, port: impl Fn(&Node) -> u16) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", port(node)));
        addresses.collect::<Vec<_>>().join(",")
    }

    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().filter_map(|node| node.process.as_ref().map(Process::pid))
    }

    /// Name, pid and status, once, of every node that has ended without being asked to.
    pub fn take_ended(&mut self) -> impl Iterator<Item = (&str, u32, ExitStatus)> {
        let ended = |node: &mut Node| take_ended(&mut node.process);
        self.nodes.iter_mut().filter_map(move |node| {
            ended(node).map(|(pid, status)| (node.name.as_str(), pid, status))
        })
    }

    /// Starts every node that does not run, on its old port with its old data, and waits for all.
    pub async fn start_again(&mut self) -> Result<()> {
        for node in self.nodes.iter_mut().filter(|node| node.process.is_none()) {
            let spec = Spec::server(&node.name, node.argv.clone(), node.log.path().to_owned());
            node.process = Some(Process::spawn(&spec)?);
        }
        let deadline = Instant::now() + START_LIMIT;
        loop {
            for node in &mut self.nodes {
                let process = node.process.as_mut().expect("invariant: all were started above");
                if let Some(status) = process.exited() {
                    node.process = None;
                    bail!("{} ended with {status}\n{}", node.name, node.log.tail());
                }
            }
            if self.all_registered().await {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "Kafka is not ready\n{}", self.nodes[0].log.tail());
        }
    }

    /// SIGTERM to every node: a clean stop.
    pub async fn stop(&mut self) -> Result<()> {
        self.ask_to_end();
        for node in &mut self.nodes {
            if let Some(mut process) = node.process.take() {
                process.stop(STOP_LIMIT).await?;
            }
        }
        Ok(())
    }

    /// SIGKILL to one node, counted from 0.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        let process = self.nodes.get_mut(node).context("no such node")?.process.take();
        process.map_or(Ok(()), |mut process| process.kill().map(|_| ()))
    }

    /// SIGSTOP to one node: it keeps its connections and does nothing.
    pub fn pause(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::SIGSTOP)
    }

    /// SIGCONT.
    pub fn resume(&mut self, node: usize) -> Result<()> {
        self.signal(node, Signal::SIGCONT)
    }

    fn signal(&mut self, node: usize, signal: Signal) -> Result<()> {
        let process = self.nodes.get_mut(node).context("no such node")?.process.as_mut();
        process.context("it is not running")?.signal(signal)
    }

    /// Every node is asked: one that survived without a quorum still counts the dead.
    async fn all_registered(&self) -> bool {
        for node in &self.nodes {
            if registered(format!("127.0.0.1:{}", node.port)).await < self.nodes.len() {
                return false;
            }
        }
        true
    }

    fn ask_to_end(&mut self) {
        self.nodes.iter_mut().filter_map(|n| n.process.as_mut()).for_each(Process::ask_to_end);
    }

    fn lost_a_port(&self) -> bool {
        self.nodes.iter().any(|node| node.log.contains("Address already in use"))
    }

    async fn prepare(
        jars: &Jars,
        home: &Path,
        logs: &Path,
        size: usize,
        security: Option<&Security>,
    ) -> Result<Self> {
        let mut listeners = Vec::with_capacity(size);
        for _ in 0..size {
            listeners.push(ports::free::<3>()?);
        }
        // Kafka wants 16 bytes in URL-safe base64; 21 hex digits and an `A` are just that.
        let cluster_id = format!("{}A", &uuid::Uuid::new_v4().simple().to_string()[..21]);
        let mut nodes = Vec::with_capacity(size);
        for (index, [port, _, secured_port]) in listeners.iter().enumerate() {
            let dir = home.join(format!("node-{}-{port}", index + 1));
            fs::create_dir_all(&dir)?;
            let file = dir.join("server.properties");
            fs::write(&file, properties(index, &listeners, &dir, security))?;
            let name = format!("kafka-{}", index + 1);
            let log = Log::new(logs, &name);
            let argv = java(jars, size, &["kafka.Kafka", &file.to_string_lossy()])?;
            let (port, secured_port) = (*port, *secured_port);
            nodes.push((Node { name, port, secured_port, argv, log, process: None }, file));
        }
        // A Java program each, so side by side.
        let format =
            nodes.iter().map(|(node, file)| format(jars, node, file, &cluster_id, security));
        try_join_all(format).await?;
        Ok(Self { nodes: nodes.into_iter().map(|(node, _)| node).collect() })
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // All at once; the nodes' own destructors wait.
        self.ask_to_end();
    }
}

async fn format(
    jars: &Jars,
    node: &Node,
    properties: &Path,
    cluster_id: &str,
    security: Option<&Security>,
) -> Result<()> {
    let file = properties.to_string_lossy();
    let mut argv =
        java(jars, 1, &["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", &file])?;
    argv.extend(security.into_iter().flat_map(Security::format_arguments));
    let spec = Spec::server("kafka-format", argv, node.log.path().to_owned());
    let status = Process::spawn(&spec)?.wait(START_LIMIT).await.context("kafka-format hangs")?;
    ensure!(status.success(), "formatting {} ended with {status}\n{}", node.name, node.log.tail());
    Ok(())
}

/// The command line of a Java program beside, or of, a cluster of so many nodes.
pub(crate) fn java(jars: &Jars, size: usize, rest: &[&str]) -> Result<Vec<String>> {
    let program = std::env::var("JAVA_HOME").map_or_else(
        |_| "java".into(),
        |home| PathBuf::from(home).join("bin/java").to_string_lossy().into_owned(),
    );
    let logging = checkout::root()?.join("deploy/local/kafka/log4j2.xml");
    // Measured resident: 380 MB for one node, 340 MB each of three.
    let heap = if size == 1 { "-Xmx512m" } else { "-Xmx384m" };
    let mut argv = vec![program, heap.to_owned(), "-XX:+ExitOnOutOfMemoryError".to_owned()];
    argv.push(format!("-Dlog4j2.configurationFile={}", logging.display()));
    argv.extend(["-cp".to_owned(), format!("{}/*", jars.dir.display())]);
    argv.extend(rest.iter().map(|&word| word.to_owned()));
    Ok(argv)
}

fn properties(
    index: usize,
    listeners: &[[u16; 3]],
    dir: &Path,
    security: Option<&Security>,
) -> String {
    let size = listeners.len();
    let replicas = size.min(3);
    // A record is acknowledged when it is on two brokers, where there are three.
    let in_sync = if replicas == 3 { 2 } else { 1 };
    let [port, controller, secured_port] = listeners[index];
    let secured = security.map(|_| format!(",SASL_SSL://127.0.0.1:{secured_port}"));
    let voters: Vec<String> = listeners
        .iter()
        .enumerate()
        .map(|(other, [_, port, _])| format!("{}@127.0.0.1:{port}", other + 1))
        .collect();
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id={}\n\
         controller.quorum.voters={}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={}\n\
         auto.create.topics.enable=false\n\
         group.initial.rebalance.delay.ms=0\n\
         default.replication.factor={replicas}\n\
         min.insync.replicas={in_sync}\n",
        index + 1,
        voters.join(","),
        secured.unwrap_or_default(),
        dir.join("log").display(),
    );
    for prefix in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
        // The default of 50 partitions is 50 directories to open at every start.
        let _infallible = writeln!(text, "{prefix}.replication.factor={replicas}");
        let _infallible = writeln!(text, "{prefix}.num.partitions=4");
    }
    for prefix in ["transaction.state.log", "share.coordinator.state.topic"] {
        let _infallible = writeln!(text, "{prefix}.min.isr={in_sync}");
    }
    text + &security.map(Security::properties).unwrap_or_default()
}

/// How many brokers this one says are there; 0 when it does not answer.
async fn registered(broker: String) -> usize {
    let ask = move || -> Option<usize> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker);
        let client: BaseConsumer = config.create().ok()?;
        Some(client.fetch_metadata(None, METADATA_LIMIT).ok()?.brokers().len())
    };
    tokio::task::spawn_blocking(ask).await.ok().flatten().unwrap_or(0)
}
