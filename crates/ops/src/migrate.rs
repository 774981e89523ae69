//! `oncebox migrate`: brings the schema to this version, or says how far it is.

use clap::Args;
use serde_json::json;
use store::migrate::{self, Progress};

use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::table::table;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Say what is applied and what is missing; exit code 1 when something is missing.
    #[arg(long, conflicts_with = "dry_run")]
    status: bool,
    /// Say what would be applied, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

pub async fn run(settings: &Settings, arguments: &Arguments) -> Result<Answer, Failure> {
    let database = &settings.database;
    if arguments.status {
        return Ok(status(arguments.format, &migrate::progress(database).await?));
    }
    let (names, done) = match arguments.dry_run {
        true => (migrate::progress(database).await?.missing, "would apply"),
        false => (migrate::run(database).await?, "applied"),
    };
    let json = json!({ "dryRun": arguments.dry_run, "applied": names });
    Ok(Answer::new(arguments.format, &json, || match names.as_slice() {
        [] => "the schema is up to date".into(),
        names => names.iter().map(|name| format!("{done} {name}\n")).collect(),
    }))
}

fn status(format: Format, progress: &Progress) -> Answer {
    let applied = progress.applied.iter().map(|applied| (&*applied.name, Some(applied.at)));
    let missing = progress.missing.iter().map(|name| (*name, None));
    let all: Vec<_> = applied.chain(missing).collect();
    let json = json!({
        "upToDate": progress.missing.is_empty(),
        "migrations": all
            .iter()
            .map(|(name, at)| json!({ "name": name, "appliedAt": at }))
            .collect::<Vec<_>>(),
    });
    let rows = || {
        all.iter().map(|(name, at)| {
            [(*name).to_owned(), at.map_or("missing".into(), |at| format!("{at:.3}"))]
        })
    };
    let text = || table(["migration", "applied at"], &rows().collect::<Vec<_>>());
    Answer::new(format, &json, text).no_if(!progress.missing.is_empty())
}
