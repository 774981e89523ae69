//! Signals to a real process: each test starts this program again as a child and signals it.

use std::{
    future,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use shutdown::{Shutdown, drain};

const CHILD: &str = "wait-as-a-child";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, grace] = &arguments[..]
        && first == CHILD
    {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        return runtime.block_on(wait_for_signal(grace.parse().expect("seconds")));
    }
    let tests = vec![
        Trial::test("first_signal_cancels_and_drain_ends_with_grace", || first_signal("TERM")),
        Trial::test("interrupt_is_a_signal_like_terminate", || first_signal("INT")),
        Trial::test("second_signal_ends_at_once", second_signal_ends_at_once),
        Trial::test("work_that_finishes_is_not_abandoned", work_that_finishes_is_not_abandoned),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Says where it is on stdout, so that the parent signals when it is awaited.
async fn wait_for_signal(grace_seconds: u64) -> ExitCode {
    let shutdown = Shutdown::on_signals();
    say("running");
    shutdown.requested().await;
    assert!(shutdown.token().is_cancelled());
    say("draining");
    let grace = Duration::from_secs(grace_seconds);
    let abandoned = drain(grace, "requests", future::pending::<()>()).await;
    say(&abandoned.expect_err("nothing ever finishes").to_string());
    ExitCode::from(3)
}

#[expect(clippy::print_stdout, reason = "the pipe to the parent")]
fn say(line: &str) {
    println!("{line}");
}

struct Waiting {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Waiting {
    fn start(grace_seconds: u64) -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([CHILD, &grace_seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("stdout is piped")?;
        Ok(Self { child, stdout: BufReader::new(stdout) })
    }

    fn expect(&mut self, line: &str) -> Result<(), Failed> {
        let mut found = String::new();
        self.stdout.read_line(&mut found)?;
        assert_eq!(found.trim_end(), line);
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<(), Failed> {
        let sent =
            Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status()?;
        assert!(sent.success());
        Ok(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Only a test that failed leaves it running; an error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_signal(name: &str) -> Result<(), Failed> {
    let mut waiting = Waiting::start(0)?;
    waiting.expect("running")?;
    waiting.signal(name)?;
    waiting.expect("draining")?;
    waiting.expect("requests: not finished within 0ns, abandoned")?;
    assert_eq!(waiting.child.wait()?.code(), Some(3));
    Ok(())
}

fn second_signal_ends_at_once() -> Result<(), Failed> {
    // An hour of grace: only the second signal can end this test.
    let mut waiting = Waiting::start(3600)?;
    waiting.expect("running")?;
    waiting.signal("TERM")?;
    waiting.expect("draining")?;
    waiting.signal("INT")?;
    assert_eq!(waiting.child.wait()?.code(), Some(128 + 2));
    Ok(())
}

fn work_that_finishes_is_not_abandoned() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let done = runtime.block_on(drain(Duration::ZERO, "nothing", future::ready(7)));
    assert_eq!(done, Ok(7));
    Ok(())
}
