//! The command line without a process: what is printed and with which exit code.

use std::ffi::OsString;

use super::{Settings, URL};
use crate::{
    Invocation,
    cli::{Cli, Exit},
};

fn run(args: &[&str], env: &[(&str, &str)]) -> Result<Invocation<Settings>, Exit> {
    let args = ["charge-api"].iter().chain(args).map(OsString::from);
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    Cli::new("charge-api", "1.2.3", "Takes charges")
        .command("migrate", "Bring the schema up to date")
        .interpret(args, env)
}

#[test]
fn no_command_runs_the_service_and_a_command_is_handed_over() {
    assert_eq!(run(&[], &[URL]).unwrap().command, None);
    assert_eq!(run(&["migrate"], &[URL]).unwrap().command, Some("migrate"));
}

#[test]
fn wrong_settings_and_wrong_arguments_exit_64() {
    let exit = run(&[], &[]).unwrap_err();
    assert_eq!(exit.code, 64);
    assert!(exit.text.contains("database.url: is required"), "{}", exit.text);

    for args in [&["--nonsense"][..], &["migrat"], &["--config"]] {
        assert_eq!(run(args, &[URL]).unwrap_err().code, 64, "{args:?}");
    }
}

#[test]
fn config_file_is_read_also_when_it_follows_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("api.toml");
    std::fs::write(&path, "database.pool_max = 3").unwrap();
    let path = path.to_str().unwrap();

    for args in [&["--config", path][..], &["migrate", "--config", path]] {
        assert_eq!(run(args, &[URL]).unwrap().settings.database.pool_max, 3, "{args:?}");
    }
}

#[test]
fn config_file_that_cannot_be_read_is_one_problem() {
    let exit = run(&["--config", "/nowhere.toml"], &[]).unwrap_err();

    assert_eq!(
        exit.text,
        "1 problem with the settings:\n  /nowhere.toml: cannot be read: No such file or directory \
         (os error 2)"
    );
}

#[test]
fn check_config_prints_values_in_force_and_origins_but_no_secret() {
    let env = [URL, ("ONCEBOX_AUTH", "disabled")];
    let exit = run(&["check-config"], &env).unwrap_err();

    assert_eq!(exit.code, 0);
    assert_eq!(
        exit.text,
        "database.url = ***  (environment DATABASE_URL)\n\
         database.pool_max = 16  (default)\n\
         http.listen = 127.0.0.1:8080  (default)\n\
         http.timeout = 5s  (default)\n\
         http.body_max = 16KiB  (default)\n\
         auth = disabled  (environment ONCEBOX_AUTH)\n\
         http.token  (not set)\n\
         http.log_headers =   (default)"
    );
}

#[test]
fn check_config_of_wrong_settings_lists_them() {
    assert_eq!(run(&["check-config"], &[]).unwrap_err().code, 64);
}

#[test]
fn help_lists_every_setting_and_needs_none() {
    let exit = run(&["--help"], &[]).unwrap_err();

    assert_eq!(exit.code, 0);
    for expected in [
        "  database.url  (DATABASE_URL, DATABASE_URL_FILE)\n      Connection URL of the database.\n      a postgres:// URL; required",
        "  database.pool_max  (ONCEBOX_DATABASE_POOL_MAX)\n      Most connections of the pool.\n      an integer from 1 to 1000; default: 16",
        "a text; optional",
        "migrate",
        "check-config",
    ] {
        assert!(exit.text.contains(expected), "{expected:?} is not in\n{}", exit.text);
    }
}

#[test]
fn version_is_printed_without_settings() {
    let exit = run(&["--version"], &[]).unwrap_err();

    assert_eq!(exit, Exit { code: 0, text: "charge-api 1.2.3".into() });
}
