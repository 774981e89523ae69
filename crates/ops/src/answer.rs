//! What a verb found or did, for a person or for a script.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

/// How to say it.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// One JSON document instead of text for people.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug)]
pub struct Answer {
    text: String,
    is_no: bool,
}

impl Answer {
    /// `text` is made only when it is wanted.
    pub fn new(format: Format, json: &Value, text: impl FnOnce() -> String) -> Self {
        let text = if format.json { format!("{json:#}") } else { text() };
        Self { text: text.trim_end().to_owned(), is_no: false }
    }

    /// The answer to what was asked is no: exit code 1.
    pub fn no_if(self, is_no: bool) -> Self {
        Self { is_no, ..self }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.is_no))
    }
}
