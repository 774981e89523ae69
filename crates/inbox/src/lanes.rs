//! What has been received and is not settled, by partition. A partition is a lane: its records are
//! settled in their order, and one that has to wait holds up no other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use store::inbox::Entry;
use tokio::time::Instant;
use uuid::Uuid;

use crate::dead_letter::DeadLetter;
use crate::event::{Event, Record};

/// A record and what is to become of it.
#[derive(Debug)]
pub enum Item {
    Event(Event),
    DeadLetter(DeadLetter),
}

impl Item {
    fn read(record: Record) -> Self {
        match Event::read(record) {
            Ok(event) => Self::Event(event),
            Err(refused) => {
                let (record, why) = *refused;
                Self::DeadLetter(DeadLetter::unreadable(record, why))
            }
        }
    }

    pub fn record(&self) -> &Record {
        match self {
            Self::Event(event) => event.record(),
            Self::DeadLetter(letter) => &letter.record,
        }
    }

    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::DeadLetter(_) => None,
        }
    }

    pub fn dead_letter(&self) -> Option<&DeadLetter> {
        match self {
            Self::Event(_) => None,
            Self::DeadLetter(letter) => Some(letter),
        }
    }

    /// The entry of the event that is settled with this item.
    pub fn entry(&self) -> Option<Entry> {
        let event = self.settles_event()?;
        let written = match self {
            Self::Event(event) => event.written(),
            Self::DeadLetter(letter) => letter.written,
        };
        Some(Entry { event, written })
    }

    /// The event that is settled with this item: recorded in the inbox, and a copy is a duplicate.
    pub fn settles_event(&self) -> Option<Uuid> {
        match self {
            Self::Event(event) => Some(event.id()),
            Self::DeadLetter(letter) => letter.event_id.filter(|_| letter.stands_for_event),
        }
    }

    /// Its attempts are over.
    pub fn refused(self, reason: &str, attempts: u32) -> Self {
        match self {
            Self::Event(event) => Self::DeadLetter(DeadLetter::refused(event, reason, attempts)),
            letter @ Self::DeadLetter(_) => letter,
        }
    }
}

#[derive(Debug)]
pub struct Lane {
    pub partition: i32,
    pub items: VecDeque<Item>,
    /// One event a transaction: a batch of these failed, and the good ones must not suffer.
    pub singly: bool,
    /// How often the first item has failed on its own.
    pub attempts: u32,
    /// How often in a row something that the lane needs was away.
    pub outages: u32,
    /// Not before this.
    pub due: Instant,
}

#[derive(Debug, Default)]
pub struct Lanes(BTreeMap<i32, Lane>);

impl Lanes {
    /// Returns how many items the lane has now.
    pub fn push(&mut self, record: Record) -> usize {
        let partition = record.partition;
        let lane = self.0.entry(partition).or_insert_with(|| Lane {
            partition,
            items: VecDeque::new(),
            singly: false,
            attempts: 0,
            outages: 0,
            due: Instant::now(),
        });
        lane.items.push_back(Item::read(record));
        lane.items.len()
    }

    /// Drops the work of partitions that another consumer has now: their offsets are not stored, so
    /// that one gets the same records.
    pub fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.0.remove(partition);
        }
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.0.values().map(|lane| lane.due).min()
    }

    /// At most `most` of the lanes that are due, those first that have waited longest.
    pub fn take_due(&mut self, now: Instant, most: usize) -> Vec<Lane> {
        let due = self.0.values().filter(|lane| lane.due <= now);
        let mut due: Vec<_> = due.map(|lane| (lane.due, lane.partition)).collect();
        due.sort_unstable();
        due.truncate(most);
        due.iter().filter_map(|(_, partition)| self.0.remove(partition)).collect()
    }

    pub fn put_back(&mut self, lane: Lane) {
        self.0.insert(lane.partition, lane);
    }

    /// Does any lane wait for something that is away?
    pub fn in_outage(&self) -> bool {
        self.0.values().any(|lane| lane.outages > 0)
    }

    /// The partitions that wait for their next attempt.
    pub fn held(&self, now: Instant) -> BTreeSet<i32> {
        self.0.values().filter(|lane| lane.due > now).map(|lane| lane.partition).collect()
    }
}
