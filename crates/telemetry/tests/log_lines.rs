//! Log lines as they leave a process. Logging and the panic hook belong to a whole process, so
//! each test starts this program again as a child that logs, and reads its stdout.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use telemetry::LogSettings;

const CHILD: &str = "log-as-a-child";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, format, level] = &arguments[..]
        && first == CHILD
    {
        log(format, level);
        return ExitCode::SUCCESS;
    }
    let tests = vec![
        Trial::test("json_is_one_flat_object_a_line", json_is_one_flat_object_a_line),
        Trial::test("auto_is_json_without_a_terminal", auto_is_json_without_a_terminal),
        Trial::test("pretty_is_for_eyes_and_without_escapes", pretty_is_for_eyes),
        Trial::test("panic_is_one_line_like_any_other", panic_is_one_line_like_any_other),
        Trial::test("level_decides_what_is_logged", level_decides_what_is_logged),
        Trial::test("wrong_level_is_a_problem_with_the_settings", wrong_level_is_a_problem),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn log(format: &str, level: &str) {
    let env = [("ONCEBOX_LOG_FORMAT", format), ("ONCEBOX_LOG_LEVEL", level)];
    let settings: LogSettings = settings::load(None, &env).expect("a test's settings are right");
    telemetry::logs::init(&settings).expect("logging starts once");
    tracing::info!(admin = %"127.0.0.1:1", attempts = 2, "listening");
    tracing::debug!("detail");
    let _ = std::thread::Builder::new().name("worker".into()).spawn(|| panic!("two\nlines")).map(
        |thread| {
            thread.join().expect_err("the thread panics");
        },
    );
}

fn lines(format: &str, level: &str) -> Result<Vec<String>, Failed> {
    let child = Command::new(std::env::current_exe()?).args([CHILD, format, level]).output()?;
    if !child.status.success() || !child.stderr.is_empty() {
        return Err(format!("{}: {}", child.status, String::from_utf8_lossy(&child.stderr)).into());
    }
    Ok(String::from_utf8(child.stdout)?.lines().map(str::to_owned).collect())
}

fn json_lines(format: &str, level: &str) -> Result<Vec<Value>, Failed> {
    lines(format, level)?.iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn json_is_one_flat_object_a_line() -> Result<(), Failed> {
    let mut lines = json_lines("json", "info")?;
    let line = lines.remove(0);
    assert_eq!(line["message"], "listening");
    assert_eq!(line["admin"], "127.0.0.1:1");
    assert_eq!(line["attempts"], 2);
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["target"], "log_lines");
    assert!(line["timestamp"].is_string());
    Ok(())
}

fn auto_is_json_without_a_terminal() -> Result<(), Failed> {
    assert_eq!(json_lines("auto", "info")?[0]["message"], "listening");
    Ok(())
}

fn pretty_is_for_eyes() -> Result<(), Failed> {
    let line = lines("pretty", "info")?.remove(0);
    assert!(line.ends_with("INFO log_lines: listening admin=127.0.0.1:1 attempts=2"), "{line:?}");
    assert!(!line.contains('\u{1b}'), "{line:?}");
    Ok(())
}

fn panic_is_one_line_like_any_other() -> Result<(), Failed> {
    let lines = json_lines("json", "info")?;
    assert_eq!(lines.len(), 2);
    let panic = &lines[1];
    assert_eq!(panic["level"], "ERROR");
    assert_eq!(panic["message"], "panicked: two\nlines");
    assert_eq!(panic["panic.thread"], "worker");
    assert!(panic["panic.location"].as_str().is_some_and(|at| at.contains("log_lines.rs:")));
    Ok(())
}

fn level_decides_what_is_logged() -> Result<(), Failed> {
    let messages = |level| -> Result<Vec<Value>, Failed> {
        Ok(json_lines("json", level)?.iter().map(|line| line["message"].clone()).collect())
    };
    let panic = json!("panicked: two\nlines");
    assert_eq!(messages("error")?, std::slice::from_ref(&panic));
    assert_eq!(messages("debug")?, [json!("listening"), json!("detail"), panic.clone()]);
    assert_eq!(messages("error,log_lines=info")?, [json!("listening"), panic]);
    Ok(())
}

fn wrong_level_is_a_problem() -> Result<(), Failed> {
    let env = [("ONCEBOX_LOG_LEVEL", "info,=,")];
    let problems = settings::load::<LogSettings>(None, &env).expect_err("no such filter");
    assert!(problems.to_string().contains("\"info,=,\" is no log filter"), "{problems}");
    Ok(())
}
