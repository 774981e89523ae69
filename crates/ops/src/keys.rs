//! `oncebox keys`: the API keys of tenants. A key is printed once, when it is made.

use std::time::Duration;

use clap::{Args, Subcommand};
use domain::{NewApiKey, TenantId};
use serde_json::{Value, json};
use settings::FromSetting as _;
use store::api_keys::{self, Listed, NewKey};
use store::audit::{self, Action};
use store::{Pool, Transaction};

use crate::answer::{Answer, Format};
use crate::failure::Failure;
use crate::operator::{Consent, Yes, action_id};
use crate::settings::Settings;
use crate::table::table;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a key for a tenant, and print it: it cannot be shown again.
    Create(Create),
    /// The keys there are, without what proves them.
    List(List),
    /// Make a key that replaces another, which goes on working for a while.
    Rotate(Rotate),
    /// End a key for good. The API may remember it for api_keys.cache_ttl.
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub struct Create {
    /// Whose charges it opens: 1 to 64 letters, digits, or one of "_.-".
    #[arg(long, value_parser = tenant)]
    tenant: String,
    /// What the key is for, so that somebody knows later.
    #[arg(long)]
    name: String,
    /// It may not create charges.
    #[arg(long)]
    read_only: bool,
    /// How long it works: a duration such as 90d, or never.
    #[arg(long, value_name = "DURATION", default_value = "never", value_parser = lifetime)]
    expires_in: Lifetime,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct List {
    #[arg(long, value_parser = tenant)]
    tenant: Option<String>,
    /// Most keys to show.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct Rotate {
    /// The part between `obx_` and the second `_`.
    prefix: String,
    /// How long the old key goes on working, unless it expires before.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    overlap: Duration,
    /// How long the new key works: a duration such as 90d, or never.
    #[arg(long, value_name = "DURATION", value_parser = lifetime)]
    expires_in: Lifetime,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Args)]
pub struct Revoke {
    /// The part between `obx_` and the second `_`.
    prefix: String,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    format: Format,
}

/// `None` is for ever.
#[derive(Debug, Clone, Copy)]
struct Lifetime(Option<Duration>);

pub async fn run(settings: &Settings, verb: &Verb) -> Result<Answer, Failure> {
    let mut connection = Pool::new(&settings.database, "oncebox")?.get().await?;
    if let Verb::List(arguments) = verb {
        let tenant = arguments.tenant.as_deref().map(TenantId::from);
        let keys = api_keys::list(&connection, tenant.as_ref(), None, arguments.limit).await?;
        return Ok(listed(arguments.format, &keys));
    }
    let tx = connection.transaction().await?;
    let (answer, consent) = match verb {
        Verb::List(_) => unreachable!("answered above"),
        Verb::Create(arguments) => (create(settings, &tx, arguments).await?, &arguments.consent),
        Verb::Rotate(arguments) => (rotate(settings, &tx, arguments).await?, &arguments.consent),
        Verb::Revoke(arguments) => (revoke(settings, &tx, arguments).await?, &arguments.consent),
    };
    if !consent.dry_run {
        tx.commit().await?;
    }
    Ok(answer)
}

async fn create(
    settings: &Settings,
    tx: &Transaction<'_>,
    arguments: &Create,
) -> Result<Answer, Failure> {
    let new = NewKey {
        tenant: &TenantId::from(arguments.tenant.as_str()),
        name: &arguments.name,
        may_write: !arguments.read_only,
        expires_in: arguments.expires_in.seconds(),
    };
    let (key, listed) = make(tx, &new).await?;
    let details = json!({ "tenant": listed.tenant, "prefix": listed.prefix });
    record(settings, tx, &arguments.consent, "keys create", &details, 1).await?;
    Ok(shown(arguments.format, arguments.consent.dry_run, &key, &listed, None))
}

async fn rotate(
    settings: &Settings,
    tx: &Transaction<'_>,
    arguments: &Rotate,
) -> Result<Answer, Failure> {
    let overlap = arguments.overlap.as_secs_f64();
    let old = api_keys::expire(tx, &arguments.prefix, overlap).await?.ok_or_else(|| {
        Failure::Refused(format!("no live key has the prefix {}: see keys list", arguments.prefix))
    })?;
    let new = NewKey {
        tenant: &old.tenant,
        name: &old.name,
        may_write: old.may_write,
        expires_in: arguments.expires_in.seconds(),
    };
    let (key, listed) = make(tx, &new).await?;
    let details =
        json!({ "tenant": listed.tenant, "prefix": listed.prefix, "replaces": old.prefix });
    record(settings, tx, &arguments.consent, "keys rotate", &details, 2).await?;
    Ok(shown(arguments.format, arguments.consent.dry_run, &key, &listed, Some(&old)))
}

async fn revoke(
    settings: &Settings,
    tx: &Transaction<'_>,
    arguments: &Revoke,
) -> Result<Answer, Failure> {
    if !arguments.consent.dry_run {
        arguments.yes.or_refuse("whoever uses the key is refused from then on")?;
    }
    let revoked = api_keys::revoke(tx, &arguments.prefix).await?.ok_or_else(|| {
        Failure::Refused(format!("no key has the prefix {}: see keys list", arguments.prefix))
    })?;
    let details = json!({ "tenant": revoked.tenant, "prefix": revoked.prefix });
    record(settings, tx, &arguments.consent, "keys revoke", &details, 1).await?;
    let done = if arguments.consent.dry_run { "would revoke" } else { "revoked" };
    let json = json!({ "dryRun": arguments.consent.dry_run, "revoked": as_json(&revoked) });
    Ok(Answer::new(arguments.format, &json, || {
        format!("{done} {} of {}: {}", revoked.prefix, revoked.tenant, revoked.name)
    }))
}

async fn make(tx: &Transaction<'_>, new: &NewKey<'_>) -> Result<(NewApiKey, Listed), Failure> {
    let (mut prefix, mut secret) = ([0; 8], [0; 32]);
    let random = getrandom::fill(&mut prefix).and_then(|()| getrandom::fill(&mut secret));
    random.map_err(|_| Failure::Refused("the system gives no random bytes".into()))?;
    let key = NewApiKey::from_random(prefix, secret);
    let listed = api_keys::create(tx, new, &key.key).await?;
    Ok((key, listed))
}

async fn record(
    settings: &Settings,
    tx: &Transaction<'_>,
    consent: &Consent,
    action: &str,
    arguments: &Value,
    rows: u64,
) -> Result<(), Failure> {
    let operator = consent.operator(settings)?;
    let action = Action { operator: &operator, action, arguments };
    Ok(audit::record(tx, action_id(), action, rows).await?)
}

/// The one time that the key itself is said; a dry run has none to say.
fn shown(
    format: Format,
    dry_run: bool,
    key: &NewApiKey,
    new: &Listed,
    old: Option<&Listed>,
) -> Answer {
    let secret = (!dry_run).then(|| key.reveal());
    let json = json!({
        "dryRun": dry_run,
        "key": secret,
        "created": as_json(new),
        "replaces": old.map(as_json),
    });
    Answer::new(format, &json, || {
        let mut text = match secret {
            Some(secret) => format!("{secret}\n\nThis is the only time it is shown.\n"),
            None => "would make a key; nothing was changed\n".into(),
        };
        text.push_str(&format!("tenant {}, expires {}\n", new.tenant, time(new.expires_at)));
        if let Some(old) = old {
            text.push_str(&format!("{} works until {}\n", old.prefix, time(old.expires_at)));
        }
        text
    })
}

fn listed(format: Format, keys: &[Listed]) -> Answer {
    let json = json!({ "keys": keys.iter().map(as_json).collect::<Vec<_>>() });
    let rows = keys.iter().map(|key| {
        let access = if key.may_write { "charge" } else { "read" };
        let state = match (key.is_live, key.revoked_at) {
            (true, _) => "live",
            (false, Some(_)) => "revoked",
            (false, None) => "expired",
        };
        [
            key.tenant.to_string(),
            key.prefix.clone(),
            key.name.clone(),
            access.to_owned(),
            state.to_owned(),
            time(key.expires_at),
        ]
    });
    let names = ["tenant", "prefix", "name", "may", "state", "expires"];
    Answer::new(format, &json, || table(names, &rows.collect::<Vec<_>>()))
}

fn as_json(key: &Listed) -> Value {
    json!({
        "tenant": key.tenant,
        "prefix": key.prefix,
        "name": key.name,
        "mayWrite": key.may_write,
        "createdAt": key.created_at,
        "expiresAt": key.expires_at,
        "revokedAt": key.revoked_at,
        "isLive": key.is_live,
    })
}

fn time(time: Option<jiff::Timestamp>) -> String {
    time.map_or("never".into(), |time| format!("{time:.0}"))
}

fn tenant(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    match (1..=64).contains(&text.len()) && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("1 to 64 letters, digits, or one of \"_.-\"".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    Duration::from_setting(text).map_err(|why| format!("it {why}"))
}

fn lifetime(text: &str) -> Result<Lifetime, String> {
    match text {
        "never" => Ok(Lifetime(None)),
        _ => duration(text).map(|duration| Lifetime(Some(duration))),
    }
}

impl Lifetime {
    fn seconds(self) -> Option<f64> {
        self.0.map(|duration| duration.as_secs_f64())
    }
}
