//! A private PostgreSQL server: real, durable, on loopback, with a password.
//!
//! Schema and databases of tests are not made here.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use tokio_postgres::{Client, Config, NoTls};

use crate::logs::Log;
use crate::ports;
use crate::process::{POLL, Process, Spec, take_ended};

/// The owner of everything in it, and its first database.
const OWNER: &str = "oncebox";
/// Every test has a database with pools of several processes of its own.
const MAX_CONNECTIONS: u32 = 300;
/// Crash recovery on two busy cores is part of a start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A fast shutdown writes a checkpoint.
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    port: u16,
    password: String,
    user: Option<User>,
    log: Log,
    process: Option<Process>,
}

impl Postgres {
    /// Makes a cluster below `home` and starts it.
    pub async fn start(home: &Path, log: Log) -> Result<Self> {
        let mut server = Self {
            bin: find_binaries()?,
            data: home.join("data"),
            port: 0,
            password: uuid::Uuid::new_v4().simple().to_string(),
            user: unprivileged_user()?,
            log,
            process: None,
        };
        server.initialise(home).await.context("initialising a PostgreSQL cluster")?;
        for attempt in 1.. {
            [server.port] = ports::free()?;
            match server.start_again().await {
                Ok(()) => break,
                Err(_) if attempt < ports::ATTEMPTS && server.log.contains("in use") => {}
                Err(error) => return Err(error),
            }
        }
        let create = format!("CREATE DATABASE {OWNER}");
        server.connect("postgres").await?.batch_execute(&create).await?;
        Ok(server)
    }

    /// The URL of the first database, as its owner.
    pub fn url(&self) -> String {
        format!("postgres://{OWNER}:{}@127.0.0.1:{}/{OWNER}", self.password, self.port)
    }

    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Its pid and status, once, if it has ended without being asked to.
    pub fn take_ended(&mut self) -> Option<(u32, ExitStatus)> {
        take_ended(&mut self.process)
    }

    pub fn version(&self) -> Result<String> {
        let output = Command::new(self.bin.join("postgres")).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// What a person types to look into the data of a run that has ended.
    pub fn command_line(&self) -> String {
        let as_user =
            self.user.as_ref().map_or(String::new(), |u| format!("runuser -u {} -- ", u.name));
        format!("{as_user}{}", self.argv().join(" "))
    }

    /// Starts it on the port it has had before, after `stop` or `kill`.
    pub async fn start_again(&mut self) -> Result<()> {
        let mut spec = Spec::server("postgres", self.argv(), self.log.path().to_owned());
        spec.user = self.user.clone();
        // SIGTERM would wait for the clients; this one says goodbye to them.
        spec.stop_signal = Signal::SIGINT;
        let deadline = Instant::now() + START_LIMIT;
        self.process = Some(Process::spawn(&spec)?);
        loop {
            if let Ok(client) = self.connect("postgres").await {
                return client.simple_query("SELECT 1").await.map(|_| ()).context("PostgreSQL");
            }
            ensure!(Instant::now() < deadline, "PostgreSQL does not answer\n{}", self.log.tail());
            let process = self.process.as_mut().expect("invariant: set above");
            if let Some(status) = process.exited() {
                // After a kill the old server's last children may still hold the shared memory.
                if !self.log.tail().contains("pre-existing shared memory block") {
                    bail!("PostgreSQL ended with {status}\n{}", self.log.tail());
                }
                self.process = Some(Process::spawn(&spec)?);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Fast shutdown: clients are sent away, everything is on disk.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.stop(STOP_LIMIT).await.map(|_| ())
    }

    /// A crash: SIGKILL to the postmaster, whose children then end by themselves.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill().map(|_| ())
    }

    /// SIGSTOP to the postmaster: those that are connected go on, and nobody new gets a word.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.as_mut().context("PostgreSQL is not running")?.signal(signal)
    }

    async fn connect(&self, database: &str) -> Result<Client> {
        let mut config: Config = self.url().parse()?;
        config.dbname(database).connect_timeout(Duration::from_secs(2));
        connect(&config).await
    }

    fn argv(&self) -> Vec<String> {
        let port = self.port.to_string();
        let program = self.bin.join("postgres");
        let words = [&program.to_string_lossy(), "-D", &self.data.to_string_lossy(), "-p", &port];
        words.map(str::to_owned).to_vec()
    }

    async fn initialise(&self, home: &Path) -> Result<()> {
        fs::create_dir_all(home)?;
        let password_file = home.join("password");
        fs::write(&password_file, &self.password)?;
        fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600))?;
        if let Some(user) = &self.user {
            for path in [home, &password_file] {
                chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            }
        }
        let mut argv = vec![self.bin.join("initdb").to_string_lossy().into_owned()];
        argv.extend(
            ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"].map(str::to_owned),
        );
        // Only this empty cluster is not flushed; the server itself keeps its durable defaults.
        argv.extend(["--no-sync".to_owned(), format!("--username={OWNER}")]);
        argv.push(format!("--pwfile={}", password_file.display()));
        argv.push(format!("--pgdata={}", self.data.display()));
        let mut spec = Spec::server("initdb", argv, self.log.path().to_owned());
        spec.user = self.user.clone();
        let status = Process::spawn(&spec)?.wait(START_LIMIT).await.context("initdb hangs")?;
        ensure!(status.success(), "initdb ended with {status}\n{}", self.log.tail());
        fs::remove_file(password_file)?;
        let mut file =
            fs::OpenOptions::new().append(true).open(self.data.join("postgresql.conf"))?;
        writeln!(file, "listen_addresses = '127.0.0.1'")?;
        writeln!(file, "unix_socket_directories = '{}'", home.display())?;
        writeln!(file, "max_connections = {MAX_CONNECTIONS}\nlog_line_prefix = '%m [%p] %d '")?;
        Ok(())
    }
}

/// A connection whose task ends with the client.
pub async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// `pg_config` knows best; Debian keeps the servers out of `PATH`, so look there too, newest first.
pub fn find_binaries() -> Result<PathBuf> {
    let configured = Command::new("pg_config").arg("--bindir").output().ok();
    let configured = configured.map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()));
    let mut debian: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    debian.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let mut candidates = configured.into_iter().chain(debian.into_iter().map(|(_, path)| path));
    candidates.find(|bin| bin.join("initdb").is_file()).context(
        "no PostgreSQL server found by pg_config or in /usr/lib/postgresql: \
         run deploy/local/prerequisites.sh, or set DATABASE_URL to a server you have",
    )
}

/// `postgres` refuses to run as root.
fn unprivileged_user() -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = User::from_name("postgres")?;
    let user =
        user.context("running as root, and there is no user `postgres` to run PostgreSQL as")?;
    Ok(Some(user))
}
