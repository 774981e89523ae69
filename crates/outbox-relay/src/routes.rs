//! Which events go to which topic. Each topic has a relay of its own, with its own memory and its own
//! Kafka client: a topic that is missing, denied or slow holds up nothing but its own events.

use std::collections::{BTreeMap, BTreeSet};

use settings::FromSetting;
use store::outbox::relay::{EventTypes, Selection};

use crate::settings::{KafkaSettings, Ordering, Settings};

/// A topic and the rows that go to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub topic: String,
    pub selection: Selection,
}

impl Route {
    /// The route of each topic: `kafka.topic` gets what `kafka.routes` sends nowhere else.
    pub fn all(settings: &Settings) -> Vec<Self> {
        let kafka = &settings.kafka;
        let routed = || kafka.routes.0.iter().filter(|(_, topic)| **topic != kafka.topic);
        let all_but =
            EventTypes::AllBut(routed().map(|(event_type, _)| event_type.clone()).collect());
        let mut only: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (event_type, topic) in routed() {
            only.entry(topic).or_default().push(event_type.clone());
        }
        let only = only.into_iter().map(|(topic, types)| (topic, EventTypes::Only(types)));
        std::iter::once((kafka.topic.as_str(), all_but))
            .chain(only)
            .map(|(topic, event_types)| {
                let behind_parked = settings.relay.ordering == Ordering::None
                    || kafka.pass_parked.iter().any(|passing| passing == topic);
                Self {
                    topic: topic.to_owned(),
                    selection: Selection { event_types, behind_parked },
                }
            })
            .collect()
    }
}

/// The topic of each event type that has one of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicsByType(BTreeMap<String, String>);

impl KafkaSettings {
    /// All topics that events go to.
    pub fn topics(&self) -> BTreeSet<&str> {
        self.routes.0.values().chain([&self.topic]).map(String::as_str).collect()
    }
}

/// `TYPE=TOPIC`, comma separated. A type may hold a `=`; a topic's name never does.
impl FromSetting for TopicsByType {
    const LIST: bool = true;

    fn from_setting(text: &str) -> Result<Self, String> {
        let mut by_type = BTreeMap::new();
        for (n, route) in Vec::from_setting(text)?.into_iter().enumerate() {
            let (event_type, topic) = route
                .rsplit_once('=')
                .map(|(event_type, topic)| (event_type.trim(), topic.trim().to_owned()))
                .filter(|(event_type, _)| !event_type.is_empty())
                .ok_or_else(|| format!("has no TYPE=TOPIC at place {}", n + 1))?;
            valid_topic(&topic).map_err(|_| format!("has no topic's name at place {}", n + 1))?;
            if by_type.insert(event_type.to_owned(), topic).is_some() {
                return Err(format!("has the type of place {} twice", n + 1));
            }
        }
        Ok(Self(by_type))
    }
}

/// Kafka's own rule for a topic's name.
pub fn valid_topic(topic: &String) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    let length = 1..=249;
    if !length.contains(&topic.len())
        || !topic.chars().all(letters)
        || topic == "."
        || topic == ".."
    {
        return Err("is not a topic's name".into());
    }
    Ok(())
}

/// A policy for a topic that gets no events would go unnoticed.
pub fn known_topics(kafka: &KafkaSettings) -> Vec<(&'static str, String)> {
    let topics = kafka.topics();
    let unknown = kafka.pass_parked.iter().any(|topic| !topics.contains(topic.as_str()));
    let why = "names a topic that is neither kafka.topic nor in kafka.routes";
    unknown.then(|| ("kafka.pass_parked", why.to_owned())).into_iter().collect()
}

#[cfg(test)]
mod tests;
