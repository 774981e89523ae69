//! The Kafka side: one member of a consumer group that hands over records and says which partitions
//! were taken away. It decides nothing about records, and no offset moves here by itself.
//!
//! Everything that the group does to this member happens inside [`Subscription::next`] and
//! [`Subscription::ready`]. Whoever calls them has no work in flight at that moment, so a partition
//! is never taken away under a running transaction.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rdkafka::TopicPartitionList;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use tokio::sync::oneshot;

use crate::event::{Header, Record};
use crate::group_member::GroupMember;
use crate::metrics::Metrics;
use crate::settings::KafkaSettings;

/// How much a crash delivers again, against how often the group's coordinator is bothered.
const COMMIT_INTERVAL_MS: &str = "1000";
/// How often the lag is worked out.
const STATISTICS_INTERVAL_MS: &str = "2000";
/// How soon a topic that was missing, or a new partition, is found.
const METADATA_INTERVAL_MS: &str = "10000";
/// How soon a broker that is back is noticed.
const RECONNECT_MAX_MS: &str = "2000";
/// Fetched ahead, of each partition at once and in all: a few batches, since what is queued here is
/// memory that is used. A record that is larger is fetched by itself.
const FETCH_BYTES_MAX: &str = "131072";
const QUEUED_MAX_KIB: &str = "512";
/// How long a partition is not fetched after the queue was found full. The default is a second, in
/// which the queue runs dry.
const FULL_QUEUE_BACKOFF_MS: &str = "10";
/// Leaving the group may take as long as the broker likes (rust-rdkafka #509). Then the session
/// timeout does what this did not.
const LEAVE_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not subscribe to {topic}")]
    Subscribe {
        topic: String,
        #[source]
        source: KafkaError,
    },
    /// The client has ended; only a new one goes on.
    #[error("the Kafka client has failed for good")]
    Fatal(#[source] KafkaError),
}

#[derive(Debug)]
pub enum Received {
    Record(Record),
    /// These partitions are another member's now.
    Revoked(Vec<i32>),
}

type Client = StreamConsumer<GroupMember>;

pub struct Subscription {
    topic: Arc<str>,
    /// `None` only while it is dropped.
    client: Option<Client>,
    /// Came after a revocation, which has to be handed over first.
    kept: Option<Record>,
}

impl Subscription {
    /// Joins the group. Inside a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Subscribe`] when librdkafka refuses the settings; an unreachable broker is no error.
    pub fn new(
        settings: &KafkaSettings,
        application: &str,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Subscribe { topic: settings.topic.clone(), source };
        let member = GroupMember::new(&settings.topic, metrics);
        let client: Client =
            client_config(settings, application).create_with_context(member).map_err(failed)?;
        client.subscribe(&[&settings.topic]).map_err(failed)?;
        Ok(Self { topic: settings.topic.as_str().into(), client: Some(client), kept: None })
    }

    /// What comes next, waiting for it at most `wait`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`Error::Fatal`].
    pub async fn next(&mut self, wait: Duration) -> Result<Option<Received>, Error> {
        if let Some(received) = self.waiting() {
            return Ok(Some(received));
        }
        // The wait also bounds what a lost wake-up of the client costs (rust-rdkafka #665).
        let polled = tokio::time::timeout(wait, self.client().recv()).await.ok();
        let polled = polled.map(|result| result.map(|message| self.own(&message)));
        self.sort_in(polled)
    }

    /// What is there without waiting.
    ///
    /// # Errors
    /// [`Error::Fatal`].
    pub fn ready(&mut self) -> Result<Option<Received>, Error> {
        if let Some(received) = self.waiting() {
            return Ok(Some(received));
        }
        let polled = self.client().recv().now_or_never();
        let polled = polled.map(|result| result.map(|message| self.own(&message)));
        self.sort_in(polled)
    }

    fn waiting(&mut self) -> Option<Received> {
        match self.member().next_revoked() {
            Some(partitions) => Some(Received::Revoked(partitions)),
            None => self.kept.take().map(Received::Record),
        }
    }

    fn sort_in(
        &mut self,
        polled: Option<Result<Record, KafkaError>>,
    ) -> Result<Option<Received>, Error> {
        match polled {
            Some(Ok(record)) => self.kept = Some(record),
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => {
                return Err(Error::Fatal(error));
            }
            // The client goes on by itself; the member has logged the error and keeps it.
            Some(Err(error)) => tracing::debug!(%error, "poll"),
            None => {}
        }
        Ok(self.waiting())
    }

    /// Everything up to `offset` is settled: the next commit says so to the group.
    pub fn store_offset(&self, partition: i32, offset: i64) {
        match self.client().store_offset(&self.topic, partition, offset) {
            Ok(()) => {}
            // The partition is another member's. It gets the records again, and the inbox says
            // that they were applied.
            Err(KafkaError::StoreOffset(RDKafkaErrorCode::State)) => {
                tracing::debug!(partition, offset, "offset of a revoked partition not stored");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(partition, offset, error, "offset not stored");
            }
        }
    }

    /// Pauses these partitions, as far as this member has them, and resumes all others. Paused
    /// ones stay this member's and are polled; they deliver nothing.
    pub fn pause_only(&self, partitions: &BTreeSet<i32>) {
        // Only what changes: to resume a partition that runs throws away what it has fetched.
        let (pause, resume) = self.member().pause_only(partitions);
        let list = |partitions: &[i32]| {
            let mut list = TopicPartitionList::new();
            for partition in partitions {
                list.add_partition(&self.topic, *partition);
            }
            list
        };
        let paused = pause.is_empty() || self.client().pause(&list(&pause)).is_ok();
        let resumed = resume.is_empty() || self.client().resume(&list(&resume)).is_ok();
        if !paused || !resumed {
            tracing::warn!(?pause, ?resume, "could not pause or resume partitions");
        }
    }

    pub fn member(&self) -> &Arc<GroupMember> {
        self.client().context()
    }

    /// Commits what is stored and leaves the group, so that the others need not wait for the
    /// session to time out.
    pub async fn leave(mut self) {
        let Some(left) = self.drop_client() else { return };
        if tokio::time::timeout(LEAVE_DEADLINE, left).await.is_err() {
            tracing::warn!(
                deadline_ms = u64::try_from(LEAVE_DEADLINE.as_millis()).unwrap_or(u64::MAX),
                "leaving the consumer group takes too long; abandoned"
            );
        }
    }

    /// Dropping the client blocks until the broker has answered, or for ever. A thread of its own
    /// keeps neither the runtime nor the end of the process waiting.
    fn drop_client(&mut self) -> Option<oneshot::Receiver<()>> {
        let client = self.client.take()?;
        let (done, left) = oneshot::channel();
        let leave = move || {
            drop(client);
            // Nobody waits any more: that is what the deadline is for.
            let _ = done.send(());
        };
        match std::thread::Builder::new().name("leave-group".into()).spawn(leave) {
            Ok(_detached) => Some(left),
            // The closure, and with it the client, was dropped here.
            Err(_) => None,
        }
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("invariant: taken only when the subscription ends")
    }

    fn own(&self, message: &BorrowedMessage<'_>) -> Record {
        Record {
            topic: Arc::clone(&self.topic),
            partition: message.partition(),
            offset: message.offset(),
            timestamp: message.timestamp().to_millis().unwrap_or(-1),
            key: message.key().map(<[u8]>::to_vec),
            headers: own_headers(message),
            payload: message.payload().map(<[u8]>::to_vec),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let _left = self.drop_client();
    }
}

fn own_headers(message: &BorrowedMessage<'_>) -> Vec<Header> {
    let Some(headers) = message.headers() else { return Vec::new() };
    let own = |index| {
        // rdkafka panics on a header whose name is not UTF-8, which any producer can send: one
        // such record must not stop a partition for ever.
        let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(index))).ok().flatten();
        header.map_or_else(
            || Header { name: char::REPLACEMENT_CHARACTER.into(), value: None },
            |header| Header { name: header.key.into(), value: header.value.map(<[u8]>::to_vec) },
        )
    };
    (0..headers.count()).map(own).collect()
}

fn client_config(settings: &KafkaSettings, application: &str) -> ClientConfig {
    let millis = |duration: Duration| duration.as_millis().to_string();
    let mut config = connection(settings);
    config
        .set("client.id", application)
        .set("group.id", &settings.group)
        // KIP-848 stalls in the linked librdkafka.
        .set("group.protocol", "classic")
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", millis(settings.session_timeout))
        .set("max.poll.interval.ms", millis(settings.max_poll_interval))
        // The default would skip what came while the group had no offset.
        .set("auto.offset.reset", "earliest")
        // Only what has been stored is committed: by the timer, when partitions are revoked and
        // when the group is left. And only we store.
        .set("enable.auto.offset.store", "false")
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", COMMIT_INTERVAL_MS)
        .set("statistics.interval.ms", STATISTICS_INTERVAL_MS)
        .set("topic.metadata.refresh.interval.ms", METADATA_INTERVAL_MS)
        .set("allow.auto.create.topics", "false")
        .set("reconnect.backoff.max.ms", RECONNECT_MAX_MS)
        .set("fetch.message.max.bytes", FETCH_BYTES_MAX)
        .set("queued.max.messages.kbytes", QUEUED_MAX_KIB)
        .set("fetch.queue.backoff.ms", FULL_QUEUE_BACKOFF_MS);
    config
}

/// How the brokers are reached, whatever is asked of them.
pub(crate) fn connection(settings: &KafkaSettings) -> ClientConfig {
    let mut config: ClientConfig = settings.security.properties().into_iter().collect();
    config
        .set("bootstrap.servers", settings.brokers.join(","))
        .set("socket.keepalive.enable", "true")
        .set("log.connection.close", "false");
    config
}
