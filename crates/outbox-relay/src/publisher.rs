//! Events to Kafka, without waiting: `send` queues, and what became of each record comes back as a
//! [`Delivery`]. Only that says that a record is published.
//!
//! It does not retry, order or remember records: that is the relay's business. Within the time of
//! `kafka.message_timeout` the client itself retries, idempotently.

mod client;
mod error;

pub use error::{ErrorClass, Failure};

use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer as _};
use tokio::task::JoinHandle;

use crate::event::Event;
use crate::settings::KafkaSettings;
use client::Client;
pub use client::{Delivery, Placed};

/// How long the cluster may take to describe a topic.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// What became of an attempt to queue a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Queued {
    /// A delivery will follow.
    Yes,
    /// No room: go on with this same record once deliveries have come in.
    Full,
    /// This record can never be sent.
    Refused(String),
    /// Not this record's fault.
    Failed(Failure),
}

/// How records travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batching {
    /// In batches with others.
    Shared,
    /// In a batch of its own. Kafka refuses batches, not records, as too large or invalid, so
    /// only a record that was refused alone is known to be the culprit.
    Alone,
}

/// A Kafka producer, replaced as a whole after a fatal error.
pub struct Publisher {
    settings: KafkaSettings,
    shared: Client,
    /// Made when the first record is under suspicion.
    alone: Option<Client>,
}

impl Publisher {
    /// Connects lazily: this fails for wrong settings only.
    ///
    /// # Errors
    /// When the client refuses its settings.
    pub fn new(settings: &KafkaSettings) -> Result<Self, KafkaError> {
        let shared = Client::new(settings, Batching::Shared)?;
        Ok(Self { settings: settings.clone(), shared, alone: None })
    }

    /// Queues a record without waiting.
    pub fn send(&mut self, topic: &str, event: &Event<'_>, batching: Batching) -> Queued {
        let client = match batching {
            Batching::Shared => &self.shared,
            Batching::Alone => match self.alone() {
                Ok(client) => client,
                Err(error) => return Queued::Failed(Failure::from_kafka(&error)),
            },
        };
        let record = BaseRecord::with_opaque_to(topic, client::opaque(event.seq))
            .key(event.key.as_bytes())
            .payload(event.payload)
            .headers(event.headers());
        match client.producer().send(record) {
            Ok(()) => Queued::Yes,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Queued::Full,
            Err((error, _)) => match Failure::from_kafka(&error) {
                // The client looked at this very record.
                Failure { class: ErrorClass::Record, reason } => Queued::Refused(reason),
                failure => Queued::Failed(failure),
            },
        }
    }

    fn alone(&mut self) -> Result<&Client, KafkaError> {
        if self.alone.is_none() {
            self.alone = Some(Client::new(&self.settings, Batching::Alone)?);
        }
        Ok(self.alone.as_ref().expect("invariant: made just now"))
    }

    fn clients(&self) -> impl Iterator<Item = &Client> {
        std::iter::once(&self.shared).chain(&self.alone)
    }

    /// What was settled since the last call.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.clients().flat_map(|client| client.deliveries.take()).collect()
    }

    pub fn deliveries_waiting(&self) -> usize {
        self.clients().map(|client| client.deliveries.len()).sum()
    }

    /// Waits until there are deliveries.
    pub async fn delivered(&self) {
        match &self.alone {
            None => self.shared.deliveries.arrived().await,
            Some(alone) => tokio::select! {
                () = self.shared.deliveries.arrived() => {}
                () = alone.deliveries.arrived() => {}
            },
        }
    }

    /// Why the producer can send nothing more, if it cannot.
    pub fn fatal_error(&self) -> Option<Failure> {
        self.clients()
            .find_map(|client| client.producer().client().fatal_error())
            .map(|(code, reason)| Failure::fatal(code, &reason))
    }

    /// The last error that was not about one record, such as a wrong password: its records only
    /// time out.
    pub fn last_error(&self) -> Option<String> {
        self.clients().find_map(|client| client.producer().context().last_error())
    }

    /// Starts anew. What the old producer had not settled is neither published nor not: its
    /// records must count as not published.
    ///
    /// # Errors
    /// When the client refuses its settings; the old producer stays.
    pub fn rebuild(&mut self) -> Result<(), KafkaError> {
        *self = Self::new(&self.settings)?;
        Ok(())
    }

    /// Asks the cluster for the topic, on a thread of its own. It is never created by asking.
    pub fn probe(&self, topic: &str) -> JoinHandle<Result<(), Failure>> {
        let (producer, topic) = (Arc::clone(self.shared.producer()), topic.to_owned());
        tokio::task::spawn_blocking(move || {
            let metadata = producer
                .client()
                .fetch_metadata(Some(&topic), PROBE_LIMIT)
                .map_err(|error| Failure::from_kafka(&error))?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            match found.map(|found| found.error()) {
                Some(None) => Ok(()),
                Some(Some(error)) => Err(Failure::from_code(RDKafkaErrorCode::from(error))),
                None => Err(Failure::from_code(RDKafkaErrorCode::UnknownTopicOrPartition)),
            }
        })
    }
}
