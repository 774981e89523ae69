//! The log file of one process.

use std::path::{Path, PathBuf};

/// How much of a log an error message shows.
const TAIL_LINES: usize = 25;

#[derive(Clone, Debug)]
pub struct Log(PathBuf);

impl Log {
    /// The log of the process with this name, in a directory that exists.
    pub fn new(dir: &Path, name: &str) -> Self {
        Self(dir.join(format!("{name}.log")))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All of it; empty when there is none yet.
    pub fn text(&self) -> String {
        let bytes = std::fs::read(&self.0).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn contains(&self, words: &str) -> bool {
        self.text().contains(words)
    }

    /// Its last lines under its path, for an error message.
    pub fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("--- {}\n{}\n---", self.0.display(), lines[from..].join("\n"))
    }
}
