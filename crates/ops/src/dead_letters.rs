//! `oncebox dead-letters`: what consumers could not apply, until somebody decides.
//!
//! A requeued letter goes through the outbox: one transaction takes the letter out and lets the relay
//! publish the event once more under its own id. The consumer's inbox would call that a duplicate, so
//! the inbox row goes too, but only where it is certain that it was written with this letter and not
//! with an effect: an unreadable record does not settle its event, and another copy may have been
//! applied.

mod told;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use store::audit::{self, Action};
use store::dead_letters::Letter;
use store::requeue::{self, Retold};
use store::{Connection, Pool, Transaction};
use uuid::Uuid;

use crate::answer::{Answer, Format};
use crate::dead_letters::told::Told;
use crate::failure::Failure;
use crate::operator::{Consent, Yes, action_id};
use crate::settings::Settings;
use crate::table::{pairs, printable, table};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// The latest dead letters.
    List(ListArguments),
    /// Everything about one letter.
    Show(ShowArguments),
    /// Publish the event of a letter once more, so that its consumer applies it.
    Requeue(RequeueArguments),
    /// Drop a letter: its event is never applied.
    Discard(DiscardArguments),
}

#[derive(Debug, Args)]
pub struct ListArguments {
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Most letters to show.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    id: Uuid,
    /// Show the payload and the reason's full text too. They may hold what is not for every eye.
    #[arg(long)]
    payload: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct RequeueArguments {
    id: Uuid,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct DiscardArguments {
    id: Uuid,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    format: Format,
}

pub async fn run(settings: &Settings, verb: &Verb) -> Result<Answer, Failure> {
    let mut connection = Pool::new(&settings.database, "oncebox")?.get().await?;
    match verb {
        Verb::List(arguments) => list(&connection, arguments).await,
        Verb::Show(arguments) => show(&connection, arguments).await,
        Verb::Requeue(arguments) => requeue(settings, &mut connection, arguments).await,
        Verb::Discard(arguments) => discard(settings, &mut connection, arguments).await,
    }
}

async fn list(connection: &Connection, arguments: &ListArguments) -> Result<Answer, Failure> {
    let consumer = arguments.consumer.as_deref();
    let letters = requeue::list(connection, consumer, arguments.limit.into()).await?;
    let json = json!({ "letters": letters.iter().map(letter_json).collect::<Vec<_>>() });
    Ok(Answer::new(arguments.format, &json, || {
        let rows = letters.iter().map(|letter| {
            [
                letter.id.to_string(),
                letter.consumer.clone(),
                place(letter),
                letter.event_id.map_or("-".into(), |id| id.to_string()),
                format!("{:.3}", letter.created_at),
                letter.published_at.map_or("no".into(), |at| format!("{at:.3}")),
            ]
        });
        match letters.is_empty() {
            true => "no dead letters".into(),
            false => {
                let head = ["id", "consumer", "record", "event", "since", "published"];
                table(head, &rows.collect::<Vec<_>>())
            }
        }
    }))
}

async fn show(connection: &Connection, arguments: &ShowArguments) -> Result<Answer, Failure> {
    let Some(letter) = requeue::find(connection, arguments.id).await? else {
        return Ok(not_there(arguments.format));
    };
    let told = Told::read(&letter);
    let advice = match &told {
        Ok(_) => "can be requeued".to_owned(),
        Err(why) => {
            format!("is no event ({why}): only its row in the outbox can be published again")
        }
    };
    let mut json = letter_json(&letter);
    json["advice"] = json!(advice);
    let hidden = "(hidden: --payload shows it)".to_owned();
    let text = |bytes: &Option<Vec<u8>>| {
        bytes.as_deref().map_or("-".into(), |bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let (reason, payload) = match arguments.payload {
        true => {
            json["reason"] = json!(letter.reason);
            json["payload"] = json!(letter.payload.as_deref().map(String::from_utf8_lossy));
            (letter.reason.clone(), printable(&text(&letter.payload)))
        }
        false => (hidden.clone(), hidden),
    };
    Ok(Answer::new(arguments.format, &json, || {
        pairs(&[
            ("id", letter.id.to_string()),
            ("consumer", letter.consumer.clone()),
            ("record", place(&letter)),
            ("event", letter.event_id.map_or("-".into(), |id| id.to_string())),
            ("key", text(&letter.key)),
            ("headers", letter.headers.to_string()),
            ("attempts", letter.attempts.to_string()),
            ("since", letter.created_at.to_string()),
            ("published", published(&letter)),
            ("advice", advice),
            ("reason", reason),
            ("payload", payload),
        ])
    }))
}

async fn requeue(
    settings: &Settings,
    connection: &mut Connection,
    arguments: &RequeueArguments,
) -> Result<Answer, Failure> {
    let operator = arguments.consent.operator(settings)?;
    if !arguments.consent.dry_run {
        arguments.yes.or_refuse("the consumer applies this event, and others see it once more")?;
    }
    let tx = connection.transaction().await?;
    let Some(letter) = requeue::lock(&tx, arguments.id).await? else {
        return Ok(not_there(arguments.format));
    };
    let action = action_id();
    let how = put_back(&tx, &letter, action).await?;
    requeue::take_out(&tx, letter.id).await?;
    record(&tx, action, &operator, "dead-letters requeue", &letter).await?;
    let json =
        json!({ "dryRun": arguments.consent.dry_run, "how": how, "letter": letter_json(&letter) });
    if arguments.consent.dry_run {
        // All of it was tried, and none of it is committed.
        drop(tx);
        return Ok(Answer::new(arguments.format, &json, || format!("would requeue: {how}")));
    }
    tx.commit().await?;
    Ok(Answer::new(arguments.format, &json, || format!("requeued: {how}")))
}

/// Makes the relay publish the event once more, and the consumer apply it. Returns how.
async fn put_back(
    tx: &Transaction<'_>,
    letter: &Letter,
    action: Uuid,
) -> Result<&'static str, Failure> {
    let Some(event) = letter.event_id else {
        return Err(Failure::Refused(
            "this record does not say which event it is, so no consumer could tell it from a copy, \
             and there is no sound way to publish it again; nothing was changed: mend its producer, \
             let it send the event with an id, then discard this letter"
                .into(),
        ));
    };
    let mark = action.to_string();
    let told = Told::read(letter);
    if told.is_ok() {
        // A readable record settles its event, and an unreadable one does not.
        requeue::forget(tx, &letter.consumer, event, letter.id).await?;
    }
    if requeue::is_settled(tx, &letter.consumer, event).await? {
        return Err(Failure::Refused(
            "another copy of this event is settled already, and applying it again would double its \
             effect; nothing was changed: discard this letter"
                .into(),
        ));
    }
    let tenant = told::tenant(letter);
    if requeue::publish_again(tx, tenant, event, &mark).await? {
        return Ok("the event's own row in the outbox is published once more");
    }
    let told = told.map_err(|why| {
        Failure::Refused(format!(
            "the record cannot be read as an event ({why}), and the outbox has no row of it; nothing \
             was changed: let its producer send it again, then discard this letter"
        ))
    })?;
    let headers = told.headers(&mark);
    let retold = Retold {
        tenant,
        id: event,
        aggregate_id: &told.aggregate_id,
        aggregate_version: told.aggregate_version,
        event_type: &told.event_type,
        payload: &told.payload,
        headers: &headers,
        created_at: told.created_at,
    };
    requeue::put_back(tx, &retold).await?;
    Ok("the outbox has no row of it any more: the record is put back there and published")
}

async fn discard(
    settings: &Settings,
    connection: &mut Connection,
    arguments: &DiscardArguments,
) -> Result<Answer, Failure> {
    let operator = arguments.consent.operator(settings)?;
    if !arguments.consent.dry_run {
        arguments.yes.or_refuse("the event of a discarded letter is never applied")?;
    }
    let tx = connection.transaction().await?;
    let Some(letter) = requeue::lock(&tx, arguments.id).await? else {
        return Ok(not_there(arguments.format));
    };
    let json = json!({ "dryRun": arguments.consent.dry_run, "letter": letter_json(&letter) });
    if arguments.consent.dry_run {
        return Ok(Answer::new(arguments.format, &json, || format!("would discard {}", letter.id)));
    }
    requeue::take_out(&tx, letter.id).await?;
    record(&tx, action_id(), &operator, "dead-letters discard", &letter).await?;
    tx.commit().await?;
    Ok(Answer::new(arguments.format, &json, || format!("discarded {}", letter.id)))
}

async fn record(
    tx: &Transaction<'_>,
    id: Uuid,
    operator: &str,
    action: &str,
    letter: &Letter,
) -> Result<(), Failure> {
    let arguments = letter_json(letter);
    audit::record(tx, id, Action { operator, action, arguments: &arguments }, 1).await?;
    Ok(())
}

fn not_there(format: Format) -> Answer {
    Answer::new(format, &json!({ "letter": null }), || "no such dead letter".into()).no_if(true)
}

fn place(letter: &Letter) -> String {
    format!("{} {}:{}", letter.topic, letter.partition, letter.offset)
}

/// Whether it is in the dead-letter topic.
fn published(letter: &Letter) -> String {
    match (letter.published_at, &letter.publish_error) {
        (Some(at), _) => at.to_string(),
        (None, Some(error)) => format!("no: {error}"),
        (None, None) => "no".into(),
    }
}

/// Neither the payload nor the reason, which may quote it.
fn letter_json(letter: &Letter) -> Value {
    json!({
        "id": letter.id,
        "consumer": letter.consumer,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "event": letter.event_id,
        "attempts": letter.attempts,
        "payloadBytes": letter.payload.as_ref().map(Vec::len),
        "createdAt": letter.created_at,
        "publishedAt": letter.published_at,
        "publishError": letter.publish_error,
    })
}
