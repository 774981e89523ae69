//! Typed configuration. Every setting has one dotted key (`database.pool_max`), read, strongest
//! first, from: its environment variable (`ONCEBOX_DATABASE_POOL_MAX`), for secrets the file that
//! variable with `_FILE` names, the TOML file given by `--config`, its default.
//!
//! All problems of one start are found and listed together. This is the only crate that reads the
//! environment or ends the process. It does not reload settings while the process runs.

mod cli;
mod group;
mod kafka;
mod problem;
mod reader;
mod secret;
mod sources;
mod value;

#[cfg(test)]
mod tests;

pub use cli::{Cli, Invocation};
pub use group::{Group, Presence, Spec, within};
pub use kafka::{KafkaSecurity, SaslMechanism, SecurityProtocol};
pub use problem::{Origin, Problem, Problems};
pub use reader::{Entry, Reader};
pub use secret::Secret;
pub use value::{ByteSize, FromSetting, Retention};

use sources::{File, Sources};

/// Reads settings from a TOML text and variables given by the caller: what tests use instead of
/// the process environment. Problems in the text name it `settings.toml`.
pub fn load<S: Group>(file_text: Option<&str>, env: &[(&str, &str)]) -> Result<S, Problems> {
    let file = file_text.map(|text| File { name: "settings.toml".into(), text: text.into() });
    let env = env.iter().map(|(name, value)| (name.into(), value.into()));
    read(Sources::new(file, env)).0
}

/// The settings, or all that is wrong with them; and every setting that was looked at.
pub(crate) fn read<S: Group>(sources: Sources) -> (Result<S, Problems>, Vec<Entry>) {
    let mut reader = Reader::new(sources);
    let settings = S::read(&mut reader);
    let (problems, entries) = reader.finish();
    let result = match settings {
        Some(settings) if problems.is_empty() => Ok(settings),
        _ => Err(problems),
    };
    (result, entries)
}
