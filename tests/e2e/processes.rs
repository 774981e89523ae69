//! The harness leaves nothing behind, and `stack up` is what somebody else's tests can rely on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use harness::checkout;
use harness::client::Client;
use harness::eventually::{SOON, eventually, eventually_true};
use harness::kafka_jars::Jars;
use harness::ledger;
use harness::logs::Log;
use harness::process::{Process, Spec, exists};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::context::{Context, tests};

tests![
    no_process_is_left_after_a_failed_run,
    no_process_is_left_after_an_interrupted_run,
    no_process_is_left_after_the_harness_was_killed,
    no_process_is_left_after_a_panic,
    the_stack_file_tells_where_everything_is_and_goes_away_with_it,
];

async fn no_process_is_left_after_a_failed_run(context: &Context) -> Result<()> {
    let place = Place::new(context)?;

    let mut run = place.exec(&["--no-kafka"], "sleep 1000 & exit 3")?;
    let status = run.wait(SOON).await.context("the run does not end")?;

    assert_eq!(status.code(), Some(3), "the command's own code");
    assert_eq!(place.left(), Vec::<String>::new());
    Ok(())
}

async fn no_process_is_left_after_an_interrupted_run(context: &Context) -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let place = Place::new(context)?;

        let mut run = place.exec(&["--no-kafka"], "touch ready; sleep 1000 & sleep 1000")?;
        place.wait_for("ready").await?;
        ensure!(place.left().len() > 3, "the search must find a run that is there");
        run.signal(signal)?;
        let status = run.wait(SOON).await.context("the run does not end")?;

        ensure!(!status.success(), "{signal}: an interrupted run is no success");
        assert_eq!(place.left(), Vec::<String>::new(), "{signal}");
    }
    Ok(())
}

async fn no_process_is_left_after_the_harness_was_killed(context: &Context) -> Result<()> {
    let place = Place::new(context)?;

    let mut run = place.exec(&[], "touch ready; sleep 1000 & sleep 1000")?;
    place.wait_for("ready").await?;
    ensure!(place.left().iter().any(|line| line.contains("kafka.Kafka")), "Kafka must be found");
    run.signal(Signal::SIGKILL)?;
    run.wait(SOON).await.context("the run does not end")?;

    eventually(SOON, "the kernel and the watchdog have ended the rest", async || {
        let left = place.left();
        ensure!(left.is_empty(), "still there: {left:?}");
        Ok(Some(()))
    })
    .await
}

async fn no_process_is_left_after_a_panic(context: &Context) -> Result<()> {
    let log = Log::new(&context.logs, "sleep");
    let spec = Spec::server("sleep", vec!["sleep".into(), "1000".into()], log.path().to_owned());
    let process = Process::spawn(&spec)?;
    let pid = process.pid();
    ensure!(exists(pid));

    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _process = process;
        panic!("this panic is meant, and what it says does not matter");
    }));

    ensure!(panicked.is_err() && !exists(pid), "process {pid} has outlived the panic");
    Ok(())
}

async fn the_stack_file_tells_where_everything_is_and_goes_away_with_it(
    context: &Context,
) -> Result<()> {
    let place = Place::new(context)?;
    let arguments = ["up", "--apis", "1", "--relays", "1", "--consumers", "1"];
    let mut run = place.stack("up", &arguments)?;
    let file = place.dir.path().join(".stack/stack.json");
    let stack: Value = eventually(SOON, "stack.json is there", async || {
        if let Some(status) = run.exited() {
            bail!("it ended with {status}: {}", place.log("up").tail());
        }
        Ok(fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    })
    .await?;

    // Everything it names is there, and works together.
    for (role, program) in [("postgres", "postgres"), ("kafka", "kafka.Kafka")] {
        let command = command_line(entry(&stack, role)?["pid"].as_u64().context("a pid")?)?;
        ensure!(command.contains(program), "the process of {role} is {command}");
    }
    let url = entry(&stack, "charge-api")?["url"].as_str().context("a URL")?.to_owned();
    let client = Client::default();
    assert_eq!(client.charge(&url, Uuid::new_v4(), 4900).await?.status, 201);
    let database_url = stack["database_url"].as_str().context("a database URL")?;
    ledger::drained(database_url, SOON).await?;

    // One at a time in a checkout.
    let mut second = place.stack("second", &arguments)?;
    let status = second.wait(SOON).await.context("the second run does not end")?;
    ensure!(!status.success(), "a second stack in the same checkout");
    ensure!(place.log("second").contains("already running"), "{}", place.log("second").tail());

    // A process that somebody kills is told of, and can be started again by what the file says.
    let consumer = entry(&stack, "charge-consumer")?;
    let pid = consumer["pid"].as_u64().context("a pid")?;
    let killed = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
    ensure!(killed.success());
    eventually_true(SOON, "the end of the consumer is told", async || {
        Ok(place.log("up").contains(&format!("charge-consumer-1 (pid {pid}) ended")))
    })
    .await?;
    let command: Vec<String> = serde_json::from_value(consumer["command"].clone())?;
    let mut spec = Spec::server("again", command, place.log("again").path().to_owned());
    spec.env = serde_json::from_value::<BTreeMap<String, String>>(consumer["env"].clone())?;
    let again = Process::spawn(&spec)?;
    let admin_url = consumer["admin_url"].as_str().context("an admin URL")?;
    eventually_true(SOON, "it is ready where it was before", async || {
        Ok(client.get(admin_url, "/readyz").await?.status == 200)
    })
    .await?;
    assert_eq!(client.charge(&url, Uuid::new_v4(), 4900).await?.status, 201);
    ledger::drained(database_url, SOON).await?;
    drop(again);

    run.signal(Signal::SIGTERM)?;
    let status = run.wait(SOON).await.context("the stack does not end")?;
    ensure!(status.success(), "the stack ended with {status}: {}", place.log("up").tail());
    ensure!(!file.exists(), "stack.json is still there");
    assert_eq!(place.left(), Vec::<String>::new());
    Ok(())
}

fn entry<'a>(stack: &'a Value, role: &str) -> Result<&'a Value> {
    let mut processes = stack["processes"].as_array().into_iter().flatten();
    processes.find(|entry| entry["role"] == role).with_context(|| format!("no {role} in {stack}"))
}

fn command_line(pid: u64) -> Result<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).context("no such process")?;
    Ok(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

/// A directory that looks like a checkout, and whose name marks all that is started from it.
struct Place {
    dir: TempDir,
    logs: PathBuf,
    jars: Jars,
}

impl Place {
    fn new(context: &Context) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("checkout-").tempdir()?;
        // PostgreSQL passes through it as another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        let kafka = dir.path().join("deploy/local/kafka");
        fs::create_dir_all(&kafka)?;
        for file in ["pom.xml", "log4j2.xml"] {
            let original = checkout::root()?.join("deploy/local/kafka").join(file);
            fs::copy(original, kafka.join(file))?;
        }
        let jars = Jars::find()?;
        fs::create_dir(dir.path().join("kafka-home"))?;
        symlink(&jars.dir, dir.path().join("kafka-home/libs"))?;
        Ok(Self { dir, logs: context.logs.clone(), jars })
    }

    fn log(&self, name: &str) -> Log {
        Log::new(&self.logs, name)
    }

    /// `stack exec` around a shell command.
    fn exec(&self, options: &[&str], command: &str) -> Result<Process> {
        let command = format!("cd {} && {command}", self.dir.path().display());
        let mut arguments = vec!["exec"];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", &command]);
        self.stack("exec", &arguments)
    }

    /// The `stack` program with servers of its own, run in this directory.
    fn stack(&self, log: &str, arguments: &[&str]) -> Result<Process> {
        ensure!(self.jars.dir.is_dir());
        let dir = self.dir.path().to_string_lossy().into_owned();
        let enter = format!("cd {dir} && exec \"$@\"");
        let program = env!("CARGO_BIN_EXE_stack");
        let mut argv: Vec<String> = ["sh", "-c", &enter, "sh", program].map(str::to_owned).to_vec();
        argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let mut spec = Spec::server("stack", argv, self.log(log).path().to_owned());
        spec.env.insert("TMPDIR".to_owned(), dir.clone());
        spec.env.insert("KAFKA_HOME".to_owned(), format!("{dir}/kafka-home"));
        Process::spawn(&spec)
    }

    async fn wait_for(&self, file: &str) -> Result<()> {
        let path: &Path = &self.dir.path().join(file);
        eventually_true(SOON, "the command of the run has begun", async || Ok(path.exists())).await
    }

    /// Every process that has this directory in its command line, environment or working directory.
    fn left(&self) -> Vec<String> {
        let mark = self.dir.path().to_string_lossy().into_owned();
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let file = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
            let text = |name: &str| String::from_utf8_lossy(&file(name)).replace('\0', " ");
            let dir = fs::read_link(process.path().join("cwd")).unwrap_or_default();
            let marked = text("cmdline").contains(&mark)
                || text("environ").contains(&mark)
                || dir.to_string_lossy().contains(&mark);
            if marked {
                left.push(format!("{} {}", process.file_name().display(), text("cmdline")));
            }
        }
        left
    }
}
