//! `oncebox reconcile`: does every charge have its event, and every charge event and key its charge?

use std::time::Duration;

use clap::Args;
use serde_json::json;
use settings::FromSetting as _;
use store::Pool;
use store::reconciliation::{self, KeyPlace, Kind, NAMED_MAX, Report};

use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::settings::Settings;
use crate::table::table;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Only charges and events of this long until now, such as 24h; keys are always all looked at.
    #[arg(long, value_name = "DURATION", value_parser = Duration::from_setting)]
    window: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

pub async fn run(settings: &Settings, arguments: &Arguments) -> Result<Answer, Failure> {
    let connection = Pool::new(&settings.database, "oncebox reconcile")?.get().await?;
    let since = match arguments.window {
        // A window that begins before time does is all of it.
        Some(window) => reconciliation::now(&connection).await?.checked_sub(window).ok(),
        None => None,
    };
    let mut report = Report::default();
    reconciliation::charges(&connection, since, &mut report).await?;
    reconciliation::events(&connection, since, &mut report).await?;
    reconciliation::keys(&connection, KeyPlace::default(), u64::MAX, &mut report).await?;
    Ok(answer(arguments.format, &report))
}

fn answer(format: Format, report: &Report) -> Answer {
    let counts = Kind::ALL.map(|kind| (kind.as_label(), report.count(kind)));
    let json = json!({
        "clean": report.is_clean(),
        "eventsKeptSince": report.events_kept_since,
        "checked": { "charges": report.charges, "events": report.events, "keys": report.keys },
        "mismatches": counts.iter().map(|(kind, count)| ((*kind).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "named": report.named.iter()
            .map(|it| json!({ "kind": it.kind.as_label(), "tenant": it.tenant_id, "id": it.id }))
            .collect::<Vec<_>>(),
    });
    Answer::new(format, &json, || {
        let Report { charges, events, keys, .. } = report;
        let mut text = format!("checked {charges} charges, {events} charge events, {keys} keys\n");
        if let Some(since) = report.events_kept_since {
            text.push_str(&format!("charges from before {since:.0} are left out: retention has deleted events of that time\n"));
        }
        if report.is_clean() {
            text.push_str("no mismatch\n");
            return text;
        }
        text.push_str(&table(
            ["mismatch", "count"],
            &counts.map(|(k, n)| [k.into(), n.to_string()]),
        ));
        text.push('\n');
        let rows = report.named.iter();
        let rows =
            rows.map(|it| [it.kind.as_label().into(), it.tenant_id.clone(), it.id.to_string()]);
        text.push_str(&table(["mismatch", "tenant", "id"], &rows.collect::<Vec<_>>()));
        if report.named.len() == NAMED_MAX {
            text.push_str("only the first are named\n");
        }
        text
    })
    .no_if(!report.is_clean())
}
