//! What can be wrong with a setting, said so that the reader can mend it: key, origin, what is
//! allowed. Never the value of a secret.

use std::fmt;

/// Where the value in force came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Environment(String),
    /// The content of the file that this variable names. The path stays out of every message:
    /// somebody may have put the secret itself there.
    SecretFile(String),
    File {
        name: String,
        line: usize,
    },
    Default,
    Unset,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::SecretFile(name) => write!(f, "the file named by {name}"),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Default => f.write_str("default"),
            Self::Unset => f.write_str("not set"),
        }
    }
}

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The setting's key; for something unknown, its name as written.
    pub key: String,
    pub origin: Origin,
    pub why: String,
    /// What the setting accepts; `None` when there is no such setting.
    pub allowed: Option<&'static str>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Unset => write!(f, "{}: {}", self.key, self.why)?,
            Origin::File { .. } if self.key.is_empty() => {
                write!(f, "{}: {}", self.origin, self.why)?
            }
            origin => write!(f, "{} ({origin}): {}", self.key, self.why)?,
        }
        match self.allowed {
            Some(allowed) => write!(f, "; allowed: {allowed}"),
            None => Ok(()),
        }
    }
}

/// All that is wrong, in one list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Keeps the first of equal problems: two groups may read one key.
    pub(crate) fn push(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "1 problem with the settings:")?,
            count => write!(f, "{count} problems with the settings:")?,
        }
        for problem in &self.0 {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

/// A key or variable that no setting has, with the nearest one that exists.
pub(crate) fn unknown(name: &str, origin: Origin, known: impl Iterator<Item = String>) -> Problem {
    // More than a third of the letters wrong is another word, not a slip.
    let distance_max = (name.len() / 3).max(1);
    let nearest = known
        .map(|candidate| (distance(name, &candidate), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min();
    let why = match nearest {
        Some((_, nearest)) => format!("no such setting; did you mean {nearest}?"),
        None => "no such setting".into(),
    };
    Problem { key: name.into(), origin, why, allowed: None }
}

/// Levenshtein distance: how many letters to insert, delete or replace.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}
