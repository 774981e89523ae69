//! The raw texts: the environment as given and the TOML file flattened to dotted keys. Nothing
//! here knows what a setting means.

use std::{collections::BTreeMap, ffi::OsString};

use toml::de::{DeTable, DeValue};

use crate::{Origin, Problem};

pub(crate) struct File {
    pub name: String,
    pub text: String,
}

pub(crate) struct FileValue {
    pub text: String,
    pub is_list: bool,
    pub line: usize,
}

#[derive(Default)]
pub(crate) struct Sources {
    pub file_name: String,
    pub file: BTreeMap<String, FileValue>,
    /// `None` for a value that is not UTF-8.
    pub env: BTreeMap<String, Option<String>>,
    /// The file could not be understood, so what is absent from it may yet stand in it.
    pub file_is_broken: bool,
    pub problems: Vec<Problem>,
}

impl Sources {
    pub fn new(file: Option<File>, env: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut sources = Self::default();
        for (name, value) in env {
            // A name that is not UTF-8 is nobody's setting.
            if let Ok(name) = name.into_string() {
                sources.env.insert(name, value.into_string().ok());
            }
        }
        if let Some(file) = file {
            sources.file_name = file.name;
            sources.read_file(&file.text);
        }
        sources
    }

    /// Notes that there is a file and that nothing of it is known.
    pub fn broken_file(&mut self, name: String, why: String) {
        self.problems.push(Problem { key: name, origin: Origin::Unset, why, allowed: None });
        self.file_is_broken = true;
    }

    fn read_file(&mut self, text: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        self.file_is_broken = !errors.is_empty();
        for error in &errors {
            // Not the error's own Display: it quotes the line, and a secret may stand there.
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            self.file_problem("", line, format!("is not TOML: {}", error.message()));
        }
        if errors.is_empty() {
            self.flatten("", table.get_ref(), text);
        }
    }

    fn flatten(&mut self, prefix: &str, table: &DeTable<'_>, text: &str) {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let line = line_of(text, name.span().start);
            if let DeValue::Table(inner) = value.get_ref() {
                self.flatten(&format!("{key}."), inner, text);
                continue;
            }
            match leaf(value.get_ref()) {
                Ok((text, is_list)) => {
                    let value = FileValue { text, is_list, line };
                    if self.file.insert(key.clone(), value).is_some() {
                        self.file_problem(&key, line, "is set twice".into());
                    }
                }
                Err(why) => self.file_problem(&key, line, why.into()),
            }
        }
    }

    fn file_problem(&mut self, key: &str, line: usize, why: String) {
        let origin = Origin::File { name: self.file_name.clone(), line };
        self.problems.push(Problem { key: key.into(), origin, why, allowed: None });
    }
}

/// The text that the environment would have had, and whether it was an array.
fn leaf(value: &DeValue<'_>) -> Result<(String, bool), &'static str> {
    Ok(match value {
        DeValue::String(text) => (text.to_string(), false),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => (number.to_string(), false),
            Err(_) => return Err("is too large"),
        },
        DeValue::Float(number) => (number.as_str().to_owned(), false),
        DeValue::Boolean(truth) => (truth.to_string(), false),
        DeValue::Datetime(time) => (time.to_string(), false),
        DeValue::Array(elements) => {
            let mut texts = Vec::with_capacity(elements.len());
            for element in elements {
                match leaf(element.get_ref())? {
                    (_, true) => return Err("is an array of arrays"),
                    (text, _) if text.contains(',') => return Err("has an element with a comma"),
                    (text, _) => texts.push(text),
                }
            }
            (texts.join(","), true)
        }
        DeValue::Table(_) => return Err("is an array of tables"),
    })
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}
