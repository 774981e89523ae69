//! Finds the value in force of each setting, and notes every problem instead of stopping at one.

use std::{fs::File, io::Read};

use crate::{
    FromSetting, Group, Origin, Presence, Problem, Problems, Spec, problem, sources::Sources,
};

/// A secret is a line or a key; more than this in the file is a mistake in its name.
const SECRET_FILE_BYTES_MAX: u64 = 64 * 1024;
/// How much of a wrong value is repeated in a message.
const SHOWN_CHARS_MAX: usize = 80;

/// A setting as it was found: what `check-config` prints.
#[derive(Debug, Clone)]
pub struct Entry {
    pub spec: Spec,
    /// The text in force, `***` for a secret; `None` when it is not set or wrong.
    pub shown: Option<String>,
    pub origin: Origin,
    pub is_secret: bool,
}

pub struct Reader {
    sources: Sources,
    entries: Vec<Entry>,
    defaults: Vec<(&'static str, &'static str)>,
    among_others: bool,
    problems: Problems,
}

/// A text that was given, and by whom.
struct Given {
    text: String,
    is_list: bool,
    origin: Origin,
}

impl Reader {
    pub(crate) fn new(mut sources: Sources) -> Self {
        let mut problems = Problems::default();
        for problem in std::mem::take(&mut sources.problems) {
            problems.push(problem);
        }
        Self { sources, entries: Vec::new(), defaults: Vec::new(), among_others: false, problems }
    }

    /// Reads a whole group. Call it for all groups before using `?` on any.
    pub fn group<G: Group>(&mut self) -> Option<G> {
        G::read(self)
    }

    /// Gives a setting of a shared group another default in this service (say, its own port).
    /// Comes before the group is read.
    pub fn default(&mut self, key: &'static str, text: &'static str) {
        self.defaults.push((key, text));
    }

    /// For a tool that is run with the file and in the environment of the services: what is not its
    /// own setting is theirs, and no problem.
    pub fn among_others(&mut self) {
        self.among_others = true;
    }

    /// Notes what only the service can see, such as two settings that contradict each other.
    pub fn problem(&mut self, key: &str, why: impl Into<String>) {
        let entry = self.entries.iter().find(|entry| entry.spec.key == key);
        let origin = entry.map_or(Origin::Unset, |entry| entry.origin.clone());
        self.problems.push(Problem { key: key.into(), origin, why: why.into(), allowed: None });
    }

    /// A setting that must have a value. `None` when a problem was noted.
    pub fn value<T: FromSetting>(
        &mut self,
        spec: Spec,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Option<T> {
        let found = self.optional(spec, check)?;
        // What a broken file holds is unknown; its own problem is on the list already.
        if found.is_none() && !self.sources.file_is_broken {
            let name = spec.env_name();
            let or_file = if T::SECRET { format!(" or {name}_FILE") } else { String::new() };
            let why = format!("is required; set {name}{or_file}, or {} in the file", spec.key);
            self.note(spec, Origin::Unset, why);
        }
        found
    }

    /// A setting that may be absent. `None` when a problem was noted, `Some(None)` when absent.
    pub fn optional<T: FromSetting>(
        &mut self,
        mut spec: Spec,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Option<Option<T>> {
        if let Some((_, text)) = self.defaults.iter().rev().find(|(key, _)| *key == spec.key) {
            spec.presence = Presence::Default(text);
        }
        let given = match self.given(spec, T::SECRET) {
            Ok(given) => given,
            Err((origin, why)) => {
                self.entry(spec, None, origin.clone(), T::SECRET);
                self.note(spec, origin, why);
                return None;
            }
        };
        let Some(Given { text, is_list, origin }) = given else {
            self.entry(spec, None, Origin::Unset, T::SECRET);
            return Some(None);
        };
        let parsed = match is_list && !T::LIST {
            true => Err("is an array".into()),
            false => T::from_setting(&text).and_then(|value| check(&value).map(|()| value)),
        };
        let shown = if T::SECRET { "***".into() } else { text.clone() };
        self.entry(spec, parsed.is_ok().then_some(shown), origin.clone(), T::SECRET);
        match parsed {
            Ok(value) => Some(Some(value)),
            Err(_) if T::SECRET => {
                self.note(spec, origin, "is wrong (its value is not shown)".into());
                None
            }
            Err(why) => {
                self.note(spec, origin, format!("{} {why}", shortened(&text)));
                None
            }
        }
    }

    fn given(&self, spec: Spec, is_secret: bool) -> Result<Option<Given>, (Origin, String)> {
        let name = spec.env_name();
        let file_name = format!("{name}_FILE");
        let in_env = self.sources.env.get(&name);
        let in_secret_file = self.sources.env.get(&file_name).filter(|_| is_secret);
        let not_utf8 = "is not UTF-8".to_owned();
        let given = |text: String, origin| Given { text, is_list: false, origin };
        match (in_env, in_secret_file) {
            (Some(_), Some(_)) => {
                let why = format!("is set twice: unset {name} or {file_name}");
                return Err((Origin::Environment(name), why));
            }
            (Some(text), None) => {
                let origin = Origin::Environment(name);
                return match text {
                    Some(text) => Ok(Some(given(text.clone(), origin))),
                    None => Err((origin, not_utf8)),
                };
            }
            (None, Some(path)) => {
                let origin = Origin::SecretFile(file_name);
                let text = path.as_deref().ok_or(not_utf8).and_then(secret_file);
                return match text {
                    Ok(text) => Ok(Some(given(text, origin))),
                    Err(why) => Err((origin, why)),
                };
            }
            (None, None) => {}
        }
        if let Some(value) = self.sources.file.get(spec.key) {
            let origin = Origin::File { name: self.sources.file_name.clone(), line: value.line };
            let text = value.text.clone();
            return Ok(Some(Given { text, is_list: value.is_list, origin }));
        }
        match spec.presence {
            Presence::Default(text) => Ok(Some(given(text.to_owned(), Origin::Default))),
            Presence::Required | Presence::Optional => Ok(None),
        }
    }

    fn entry(&mut self, spec: Spec, shown: Option<String>, origin: Origin, is_secret: bool) {
        if self.entries.iter().all(|entry| entry.spec.key != spec.key) {
            self.entries.push(Entry { spec, shown, origin, is_secret });
        }
    }

    fn note(&mut self, spec: Spec, origin: Origin, why: String) {
        let key = spec.key.to_owned();
        self.problems.push(Problem { key, origin, why, allowed: Some(spec.allowed) });
    }

    /// Everything has been read: what is left over in the file or in our part of the environment
    /// belongs to no setting.
    pub(crate) fn finish(mut self) -> (Problems, Vec<Entry>) {
        if self.among_others {
            return (self.problems, self.entries);
        }
        for (key, value) in &self.sources.file {
            if self.entries.iter().all(|entry| entry.spec.key != key) {
                let known = self.entries.iter().map(|entry| entry.spec.key.to_owned());
                let origin =
                    Origin::File { name: self.sources.file_name.clone(), line: value.line };
                self.problems.push(problem::unknown(key, origin, known));
            }
        }
        let mut known: Vec<String> = Vec::new();
        for entry in &self.entries {
            let name = entry.spec.env_name();
            if entry.is_secret {
                known.push(format!("{name}_FILE"));
            }
            known.push(name);
        }
        for (name, value) in &self.sources.env {
            let value = value.as_deref().unwrap_or_default();
            let is_ours = name.starts_with("ONCEBOX_") && !is_service_link(name, value);
            if is_ours && !known.contains(name) {
                let origin = Origin::Environment(name.clone());
                self.problems.push(problem::unknown(name, origin, known.iter().cloned()));
            }
        }
        (self.problems, self.entries)
    }
}

/// Kubernetes puts `<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT_80_TCP_ADDR` and the like into every
/// pod; a Service called `oncebox-api` makes them look like ours.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| {
            name.ends_with(protocol)
                || ["_ADDR", "_PORT", "_PROTO"]
                    .iter()
                    .any(|part| name.ends_with(&format!("{protocol}{part}")))
        })
}

/// The content of the file, without the newline that editors put at its end.
fn secret_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let length = File::open(path)
        .and_then(|file| file.take(SECRET_FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if length as u64 > SECRET_FILE_BYTES_MAX {
        return Err(format!("is longer than {SECRET_FILE_BYTES_MAX} bytes"));
    }
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
