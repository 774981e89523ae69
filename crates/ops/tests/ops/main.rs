//! `oncebox` as a process, against a real PostgreSQL, a database a test.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests speak to the database as an outsider would, and fail where they stand"
)]

mod dead_letters;
mod keys;
mod migrate;
mod outbox;
mod reconcile;
mod verify;

use std::process::{Command, Output};

use serde_json::Value;

/// What the process said and how it ended.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Run {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Asserts on the exit code with everything in sight.
    #[track_caller]
    fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }
}

/// Runs `oncebox` with an environment of nothing but this database and a user.
async fn oncebox(url: &str, arguments: &[&str]) -> Run {
    oncebox_as(Some("ada"), url, arguments).await
}

async fn oncebox_as(user: Option<&str>, url: &str, arguments: &[&str]) -> Run {
    let user = user.map(|user| ("USER", user));
    oncebox_in(&[("DATABASE_URL", url)].into_iter().chain(user).collect::<Vec<_>>(), arguments)
        .await
}

async fn oncebox_in(environment: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.env_clear().envs(environment.iter().copied()).args(arguments);
    // Not on the runtime's thread: the connections of a test are driven there.
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let Output { status, stdout, stderr } = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}
