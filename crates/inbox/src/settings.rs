//! The settings of an inbox: where its events come from, and how they are applied.

use std::time::Duration;

use settings::{Group, KafkaSecurity, Reader};
use store::DatabaseSettings;

settings::group! {
    /// Where the events come from.
    pub struct KafkaSettings {
        /// Brokers to ask for the others.
        brokers: Vec<String> = "kafka.brokers" env "KAFKA_BROKERS", required,
            "host:port, comma separated", check not_empty;
        /// The topic to read.
        topic: String = "kafka.topic", default "charges.events", "a topic name";
        /// Where dead letters are published to as well. It must exist: it is never created. Unset: they
        /// are in their table only.
        dead_letter_topic: Option<String> = "kafka.dead_letter_topic", optional,
            "the name of a topic other than kafka.topic";
        /// The consumer group; its members share the partitions of the topic.
        group: String = "kafka.group", default "charge-consumer", "a group name";
        /// After how long without a heartbeat the group gives this member's partitions to others.
        session_timeout: Duration = "kafka.session_timeout", default "10s",
            "a duration from 6s to 5m, within what the brokers allow",
            range Duration::from_secs(6)..=Duration::from_secs(300);
        /// After how long without a poll this member leaves the group.
        max_poll_interval: Duration = "kafka.max_poll_interval", default "5m",
            "a duration from 6s to 1h, not below kafka.session_timeout",
            range Duration::from_secs(6)..=Duration::from_secs(3600);
        group security: KafkaSecurity;
    }
}

settings::group! {
    /// How events are applied.
    pub struct ConsumerSettings {
        /// The name that events are recorded under in the inbox; by default the name of the group.
        /// Under another name every event is new again.
        name: Option<String> = "consumer.name", optional, "a name";
        /// Most events of a partition in one transaction.
        batch: usize = "consumer.batch", default "500", "an integer from 1 to 10000",
            range 1..=10_000;
        /// Most partitions worked on at the same time; each takes a connection.
        concurrency: usize = "consumer.concurrency", default "4",
            "an integer from 1 to 64, at most database.pool_max", range 1..=64;
        /// How often an event is tried that a statement failed for, before it is a dead letter. An
        /// outage does not count.
        attempts: u32 = "consumer.attempts", default "3", "an integer from 1 to 100", range 1..=100;
        /// Longest transaction; one that takes longer is given up and tried again.
        transaction_timeout: Duration = "consumer.transaction_timeout", default "30s",
            "a duration from 1s to 10m, below kafka.max_poll_interval",
            range Duration::from_secs(1)..=Duration::from_secs(600);
    }
}

settings::group! {
    /// How long the inbox can tell whether an event was applied.
    pub struct InboxSettings {
        /// The dedup window: an event that is older is parked, never applied. It must cover the
        /// topic's retention.ms and inbox.longest_replay together.
        retention: Duration = "inbox.retention", default "7d", "a duration from 1m to 3650d",
            range Duration::from_secs(60)..=Duration::from_secs(3650 * 24 * 60 * 60);
        /// How much older than the topic's oldest record an event may be that is published again.
        longest_replay: Duration = "inbox.longest_replay", default "0s",
            "a duration up to 3650d", range Duration::ZERO..=Duration::from_secs(3650 * 24 * 60 * 60);
        /// How long the topic keeps its events, for brokers that do not tell; by default they are
        /// asked.
        topic_retention: Option<Duration> = "inbox.topic_retention", optional, "a duration";
    }
}

/// All that [`Inbox::build`](crate::Inbox::build) needs; a service adds its own.
#[derive(Debug, Clone)]
pub struct Settings {
    pub kafka: KafkaSettings,
    pub consumer: ConsumerSettings,
    pub inbox: InboxSettings,
    pub database: DatabaseSettings,
}

impl Settings {
    /// The name in the inbox.
    pub fn consumer_name(&self) -> &str {
        self.consumer.name.as_ref().unwrap_or(&self.kafka.group)
    }
}

impl Group for Settings {
    fn read(reader: &mut Reader) -> Option<Self> {
        let (kafka, consumer, database) = (reader.group(), reader.group(), reader.group());
        let inbox = reader.group();
        let (kafka, consumer, database): (KafkaSettings, ConsumerSettings, DatabaseSettings) =
            (kafka?, consumer?, database?);
        contradictions(&kafka, &consumer, &database, reader);
        Some(Self { kafka, consumer, inbox: inbox?, database })
    }
}

/// Settings that are right by themselves and wrong together.
fn contradictions(
    kafka: &KafkaSettings,
    consumer: &ConsumerSettings,
    database: &DatabaseSettings,
    reader: &mut Reader,
) {
    if kafka.max_poll_interval < kafka.session_timeout {
        reader.problem("kafka.max_poll_interval", "is below kafka.session_timeout");
    }
    if kafka.dead_letter_topic.as_ref() == Some(&kafka.topic) {
        let why = "is kafka.topic: each dead letter would come again as a record, and be one more";
        reader.problem("kafka.dead_letter_topic", why);
    }
    if consumer.transaction_timeout >= kafka.max_poll_interval {
        reader.problem("consumer.transaction_timeout", "is not below kafka.max_poll_interval");
    }
    if u64::try_from(consumer.concurrency).is_ok_and(|most| most > u64::from(database.pool_max)) {
        reader.problem("consumer.concurrency", "is above database.pool_max");
    }
}

#[expect(clippy::ptr_arg, reason = "the settings macro hands over the field as it is")]
fn not_empty(brokers: &Vec<String>) -> Result<(), String> {
    if brokers.is_empty() { Err("is empty".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIRED: [(&str, &str); 2] =
        [("DATABASE_URL", "postgres://u@localhost/d"), ("KAFKA_BROKERS", "localhost:9092")];

    #[test]
    fn the_inbox_name_is_the_groups_unless_it_is_given() {
        let settings: Settings = settings::load(None, &REQUIRED).expect("settings");
        assert_eq!(settings.consumer_name(), "charge-consumer");
        let file = "[consumer]\nname = 'other'";
        let settings: Settings = settings::load(Some(file), &REQUIRED).expect("settings");
        assert_eq!(settings.consumer_name(), "other");
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_together() {
        let file = "[kafka]
            security_protocol = 'sasl_ssl'
            sasl_username = 'u'
            max_poll_interval = '20s'
            dead_letter_topic = 'charges.events'
            [consumer]
            concurrency = 32";
        let problems = settings::load::<Settings>(Some(file), &REQUIRED).expect_err("problems");
        let text = problems.to_string();
        for key in [
            "kafka.sasl_mechanism",
            "kafka.sasl_password",
            "kafka.dead_letter_topic",
            "consumer.transaction_timeout",
            "consumer.concurrency",
        ] {
            assert!(text.contains(key), "{key} is not in\n{text}");
        }
    }
}
