//! The command line that all services share: run (no command), `check-config`, and the few
//! commands a service adds; or, for a tool, verbs of its own with arguments. Settings are never
//! given as arguments: arguments show in `ps`.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    marker::PhantomData,
    path::PathBuf,
};

use crate::{
    Entry, Group, Presence,
    sources::{File, Sources},
};

/// EX_USAGE of sysexits.h: starting again with the same settings cannot help, which service
/// managers can be told (`RestartPreventExitStatus=64`).
const EXIT_WRONG_SETTINGS: i32 = 64;
const CHECK_CONFIG: &str = "check-config";

/// A service's command line. `S` is its settings.
pub struct Cli<S> {
    command: clap::Command,
    commands: Vec<&'static str>,
    settings: PhantomData<S>,
}

/// What the process was asked to do.
#[derive(Debug)]
pub struct Invocation<S> {
    pub settings: S,
    /// The service's own command, `None` to run the service.
    pub command: Option<&'static str>,
}

/// Why the process ends before it began.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub code: i32,
    pub text: String,
}

impl<S: Group> Cli<S> {
    pub fn new(name: &'static str, version: &'static str, about: &'static str) -> Self {
        let config = clap::Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .global(true)
            .help("TOML file with settings; the environment is stronger");
        let check_config = clap::Command::new(CHECK_CONFIG)
            .about("Print every setting, its value in force and where it came from");
        let command = clap::Command::new(name)
            .version(version)
            .about(about)
            .arg(config)
            .subcommand(check_config)
            .disable_help_subcommand(true);
        Self { command, commands: Vec::new(), settings: PhantomData }
    }

    /// Adds a command of the service's own, which gets the same settings.
    pub fn command(mut self, name: &'static str, help: &'static str) -> Self {
        self.command = self.command.subcommand(clap::Command::new(name).about(help));
        self.commands.push(name);
        self
    }

    /// Reads arguments and environment. Ends the process for `--help`, `--version` and
    /// `check-config` (exit 0), and with a list of all problems for wrong settings (exit 64).
    pub fn parse(self) -> Invocation<S> {
        self.interpret(args(), env()).unwrap_or_else(end)
    }

    /// As [`Cli::parse`], for a tool: one of its verbs must be given. `more_help` comes before the
    /// settings in `--help`.
    pub fn parse_verb<V: clap::Subcommand>(self, more_help: &str) -> (S, V) {
        self.interpret_verb(more_help, args(), env()).unwrap_or_else(end)
    }

    pub(crate) fn interpret(
        self,
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Invocation<S>, Exit> {
        let Self { command, commands, .. } = self;
        let (settings, matches) = read_all(command, "", args, env)?;
        let chosen = matches.subcommand_name();
        let command = commands.into_iter().find(|name| Some(*name) == chosen);
        Ok(Invocation { settings, command })
    }

    pub(crate) fn interpret_verb<V: clap::Subcommand>(
        self,
        more_help: &str,
        args: impl IntoIterator<Item = OsString>,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<(S, V), Exit> {
        let command = V::augment_subcommands(self.command).subcommand_required(true);
        let (settings, matches) = read_all(command, more_help, args, env)?;
        let verb = V::from_arg_matches(&matches).map_err(wrong_arguments)?;
        Ok((settings, verb))
    }
}

fn read_all<S: Group>(
    command: clap::Command,
    more_help: &str,
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(S, clap::ArgMatches), Exit> {
    let (_, known) = crate::read::<S>(Sources::default());
    let command = command.after_help(format!("{more_help}{}", help(&known)));
    let matches = command.try_get_matches_from(args).map_err(wrong_arguments)?;
    let (settings, entries) = crate::read::<S>(sources(matches.get_one("config"), env));
    let settings = settings
        .map_err(|problems| Exit { code: EXIT_WRONG_SETTINGS, text: problems.to_string() })?;
    if matches.subcommand_name() == Some(CHECK_CONFIG) {
        return Err(Exit { code: 0, text: in_force(&entries) });
    }
    Ok((settings, matches))
}

fn wrong_arguments(error: clap::Error) -> Exit {
    Exit {
        code: if error.use_stderr() { EXIT_WRONG_SETTINGS } else { 0 },
        text: error.to_string().trim_end().to_owned(),
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads them")]
fn env() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os()
}

fn args() -> impl Iterator<Item = OsString> {
    std::env::args_os()
}

#[expect(clippy::disallowed_methods, reason = "the one place that may exit: nothing runs yet")]
fn end<T>(exit: Exit) -> T {
    // Nobody is left to tell when the stream is closed.
    let _ = match exit.code {
        0 => writeln!(io::stdout(), "{}", exit.text),
        _ => writeln!(io::stderr(), "{}", exit.text),
    };
    std::process::exit(exit.code)
}

fn sources(
    config: Option<&PathBuf>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Sources {
    let Some(path) = config else { return Sources::new(None, env) };
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => Sources::new(Some(File { name, text }), env),
        Err(error) => {
            let mut sources = Sources::new(None, env);
            sources.broken_file(name, format!("cannot be read: {error}"));
            sources
        }
    }
}

fn help(entries: &[Entry]) -> String {
    let mut text = String::from("Settings (strongest first: environment, --config FILE, default):");
    for Entry { spec, is_secret, .. } in entries {
        let name = spec.env_name();
        let or_file = if *is_secret { format!(", {name}_FILE") } else { String::new() };
        let presence = match spec.presence {
            Presence::Required => "required".to_owned(),
            Presence::Optional => "optional".to_owned(),
            Presence::Default(default) => format!("default: {default}"),
        };
        let help = spec.help.trim();
        let (key, allowed) = (spec.key, spec.allowed);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n\n  {key}  ({name}{or_file})\n      {help}\n      {allowed}; {presence}"
        );
    }
    text
}

fn in_force(entries: &[Entry]) -> String {
    let lines = entries.iter().map(|entry| match &entry.shown {
        Some(shown) => format!("{} = {shown}  ({})", entry.spec.key, entry.origin),
        None => format!("{}  ({})", entry.spec.key, entry.origin),
    });
    lines.collect::<Vec<_>>().join("\n")
}
