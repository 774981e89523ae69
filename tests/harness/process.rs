//! Child processes that never outlive this one.
//!
//! Each child leads its own process group and is ended by id: its own signal, a bounded wait, then
//! SIGKILL for the group. Should this process die without running a destructor (SIGKILL, abort), the
//! kernel kills its children: they start through `setpriv --pdeathsig KILL`, which keeps the pid.
//! What a child means (a database, a broker, a service) is none of this module's business.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, User};

/// How often a wait looks again; short against every server's start and stop.
pub const POLL: Duration = Duration::from_millis(20);
/// How long a child may take over its own ending when nobody asked for a certain time.
const GRACE: Duration = Duration::from_secs(10);

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What messages and log files call it, for example `charge-api-1`.
    pub name: String,
    pub argv: Vec<String>,
    /// All that the child gets besides `PATH`, unless `output` is `Inherit`.
    pub env: BTreeMap<String, String>,
    pub output: Output,
    /// The user to become; only root can ask for this.
    pub user: Option<User>,
    /// What asks it to end.
    pub stop_signal: Signal,
}

#[derive(Clone, Debug)]
pub enum Output {
    /// Both streams are appended to this file.
    Log(PathBuf),
    /// Terminal, standard input and environment are shared with this process.
    Inherit,
}

impl Spec {
    /// A server that ends at SIGTERM.
    pub fn server(name: impl Into<String>, argv: Vec<String>, log: PathBuf) -> Self {
        Self {
            name: name.into(),
            argv,
            env: BTreeMap::new(),
            output: Output::Log(log),
            user: None,
            stop_signal: Signal::SIGTERM,
        }
    }
}

/// A running child, or one that has ended and keeps its status.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    stop_signal: Signal,
    asked: bool,
}

impl Process {
    pub fn spawn(spec: &Spec) -> Result<Self> {
        let command = command(spec)?;
        let child = spawn_from_the_lasting_thread(command)
            .with_context(|| format!("starting {} through setpriv (util-linux)", spec.name))?;
        let (name, stop_signal) = (spec.name.clone(), spec.stop_signal);
        Ok(Self { name, child, status: None, stop_signal, asked: false })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pid of the program itself: `setpriv` and `sh` replaced themselves by it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its status if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && has_ended(self.id()) {
            // The dead leader still holds the group's id, so this cannot hit a stranger.
            let _none_left_is_fine = killpg(self.id(), Signal::SIGKILL);
            self.status = self.child.wait().ok();
        }
        self.status
    }

    /// Sends a signal to the process alone; one that has ended is left alone.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exited().is_some() {
            return Ok(());
        }
        kill(self.id(), signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// Sends a signal to every process of its group.
    pub fn signal_group(&mut self, signal: Signal) -> Result<()> {
        if self.exited().is_some() {
            return Ok(());
        }
        killpg(self.id(), signal).with_context(|| format!("{signal} to the group of {}", self.name))
    }

    /// Waits until it has ended, `None` when it still runs at the end of the time.
    pub async fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.exited() {
                None if Instant::now() < deadline => tokio::time::sleep(POLL).await,
                status => return status,
            }
        }
    }

    /// Asks it to end and waits; after `grace` it is killed. Says how it ended.
    pub async fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.ask_to_end();
        match self.wait(grace).await {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// SIGKILL to the group, and the wait for it to be gone.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.exited() {
            return Ok(status);
        }
        let _a_lost_race_with_its_end_is_fine = killpg(self.id(), Signal::SIGKILL);
        let status = self.child.wait().with_context(|| format!("waiting for {}", self.name))?;
        self.status = Some(status);
        Ok(status)
    }

    /// Its stop signal without a wait, so that several can end side by side. Once: to our services a
    /// second one means that the drain is to be abandoned.
    pub fn ask_to_end(&mut self) {
        if std::mem::replace(&mut self.asked, true) {
            return;
        }
        let signal = self.stop_signal;
        let _gone_is_fine = self.signal(signal);
        // A stopped process would never see it.
        let _gone_is_fine = self.signal(Signal::SIGCONT);
    }

    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("invariant: a pid fits an i32"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask_to_end();
        let deadline = Instant::now() + GRACE;
        while self.exited().is_none() {
            if Instant::now() >= deadline {
                let _nothing_more_can_be_done = self.kill();
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The pid and status of a child that has ended, and its place is empty then.
pub fn take_ended(place: &mut Option<Process>) -> Option<(u32, ExitStatus)> {
    let status = place.as_mut()?.exited()?;
    place.take().map(|process| (process.pid(), status))
}

/// Is there a process with this id (a zombie counts)?
pub fn exists(pid: u32) -> bool {
    let Ok(raw) = i32::try_from(pid) else { return false };
    // EPERM: it exists and is somebody else's.
    !matches!(kill(Pid::from_raw(raw), None), Err(Errno::ESRCH))
}

/// Kills a process group when this process is gone, also by SIGKILL: for a command that starts
/// further processes, which the kernel would not tell of our end.
pub struct Watchdog(Child);

impl Watchdog {
    pub fn over(process: &Process) -> Result<Self> {
        // The read ends when the last copy of the pipe's other end is closed: when we are gone.
        let child = Command::new("sh")
            .args([
                "-c",
                "read -r _; kill -s KILL -- \"-$1\"",
                "watchdog",
                &process.pid().to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the watchdog (sh)")?;
        Ok(Self(child))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Killed before its pipe closes, so it harms nobody.
        let _it_may_be_gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn has_ended(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}

fn command(spec: &Spec) -> Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(user) = &spec.user {
        command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
        command.arg("--init-groups");
    }
    // Had we died before the prctl, no signal would ever come: so it checks who its parent is now.
    command.args(["--", "sh", "-c", "[ \"$PPID\" = \"$0\" ] && exec \"$@\""]);
    command.arg(std::process::id().to_string()).args(&spec.argv).process_group(0);
    match &spec.output {
        Output::Log(path) => {
            let log = append(path)?;
            // Another user may not be able to enter the directory we are in.
            command.env_clear().env("PATH", path_variable()).current_dir("/");
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        }
        Output::Inherit => {}
    }
    command.envs(&spec.env);
    Ok(command)
}

fn append(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.with_context(|| format!("opening the log {}", path.display()))
}

fn path_variable() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())
}

type Job = (Command, mpsc::Sender<io::Result<Child>>);

/// The kernel sends the death signal when the *thread* that started the child ends, so all children
/// are started by one thread that ends only with the process.
fn spawn_from_the_lasting_thread(command: Command) -> io::Result<Child> {
    static JOBS: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in receiver {
                let _the_asker_may_be_gone = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, child) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    jobs.send((command, answer)).map_err(|_| gone(()))?;
    child.recv().map_err(|_| gone(()))?
}
