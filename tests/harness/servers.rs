//! The servers of a run: those named by the environment, else private ones.
//!
//! `DATABASE_URL` and `KAFKA_BROKERS` win; a server that was named is used as it is and never
//! stopped.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::kafka::Kafka;
use crate::kafka_jars::Jars;
use crate::logs::Log;
use crate::postgres::{self, Postgres};
use crate::run_dir::RunDir;

pub struct Servers {
    pub database_url: String,
    /// `None` when no Kafka was asked for.
    pub kafka_brokers: Option<String>,
    /// What was chosen, a line each, for people.
    pub chosen: Vec<String>,
    // Dropped in this order: the directory goes when nothing writes to it any more.
    pub postgres: Option<Postgres>,
    pub kafka: Option<Kafka>,
    run_dir: RunDir,
}

/// What the environment says.
#[derive(Debug, Default)]
pub struct Given {
    pub database_url: Option<String>,
    pub kafka_brokers: Option<String>,
}

impl Given {
    pub fn from_environment() -> Self {
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { database_url: read("DATABASE_URL"), kafka_brokers: read("KAFKA_BROKERS") }
    }
}

impl Servers {
    /// Starts what is not given; `brokers` is `None` for PostgreSQL alone.
    pub async fn start(given: Given, brokers: Option<usize>, logs: &Path) -> Result<Self> {
        std::fs::create_dir_all(logs).with_context(|| format!("making {}", logs.display()))?;
        let run_dir = RunDir::create()?;
        let private_postgres = async {
            if given.database_url.is_some() {
                return Ok(None);
            }
            let home = run_dir.path().join("postgres");
            Postgres::start(&home, Log::new(logs, "postgres")).await.map(Some)
        };
        let private_kafka = async {
            let Some(size) = brokers.filter(|_| given.kafka_brokers.is_none()) else {
                return Ok(None);
            };
            let jars = Jars::find()?;
            let home = run_dir.path().join("kafka");
            let kafka = Kafka::start(&jars, &home, logs, size, None).await?;
            Ok::<_, anyhow::Error>(Some((kafka, jars)))
        };
        let (postgres, kafka) = tokio::try_join!(private_postgres, private_kafka)?;

        let mut chosen = Vec::new();
        let database_url = match &postgres {
            Some(server) => server.url(),
            None => given.database_url.context("invariant: given or private")?,
        };
        let address = without_password(&database_url);
        chosen.push(match &postgres {
            Some(server) => format!("{} at {address}, private", server.version()?),
            None => format!(
                "PostgreSQL {} at {address}, from DATABASE_URL",
                version(&database_url).await?
            ),
        });
        let kafka_brokers = match &kafka {
            Some((kafka, jars)) => {
                let (size, version, origin) = (kafka.size(), jars.version(), &jars.origin);
                let brokers = kafka.brokers();
                chosen.push(format!(
                    "Apache Kafka {version} ({origin}) at {brokers}, private, {size} node(s)"
                ));
                Some(brokers)
            }
            None => given.kafka_brokers.filter(|_| brokers.is_some()),
        };
        if let (None, Some(brokers)) = (&kafka, &kafka_brokers) {
            chosen.push(format!("Kafka at {brokers}, from KAFKA_BROKERS"));
        }
        let kafka = kafka.map(|(kafka, _)| kafka);
        Ok(Self { database_url, kafka_brokers, chosen, postgres, kafka, run_dir })
    }

    /// Both servers end side by side.
    pub async fn stop(mut self) -> Result<()> {
        self.stop_servers().await
    }

    /// Like `stop`, but the data stays until the next run starts; says how to look at it.
    pub async fn stop_and_keep(mut self) -> Result<Option<(PathBuf, String)>> {
        let command = self.postgres.as_ref().map(Postgres::command_line);
        self.stop_servers().await?;
        Ok(command.map(|command| (self.run_dir.keep(), command)))
    }

    async fn stop_servers(&mut self) -> Result<()> {
        let (postgres, kafka) = (self.postgres.as_mut(), self.kafka.as_mut());
        let stop_postgres = async {
            match postgres {
                Some(server) => server.stop().await,
                None => Ok(()),
            }
        };
        let stop_kafka = async {
            match kafka {
                Some(server) => server.stop().await,
                None => Ok(()),
            }
        };
        tokio::try_join!(stop_postgres, stop_kafka).map(|_| ())
    }
}

async fn version(url: &str) -> Result<String> {
    let client = postgres::connect(&url.parse()?).await;
    let client = client.context("DATABASE_URL is set, and the server does not answer")?;
    Ok(client.query_one("SELECT current_setting('server_version')", &[]).await?.get(0))
}

/// A URL for eyes and logs.
pub fn without_password(url: &str) -> String {
    let Some((head, tail)) = url.split_once('@') else { return url.to_owned() };
    match head.split_once("://") {
        Some((scheme, user)) => {
            format!("{scheme}://{}@{tail}", user.split(':').next().unwrap_or_default())
        }
        None => url.to_owned(),
    }
}
