//! What was found, record by record and then row by row. It knows neither Kafka nor PostgreSQL.

use std::collections::HashMap;

use jiff::Timestamp;
use store::outbox::retention::CLOCKS_APART;
use store::outbox::verify::{Known, Place, Published};
use uuid::Uuid;

use super::seen::Seen;
use crate::kafka::Range;

/// Differences that are named; beyond that only their number matters.
pub const NAMED_MAX: usize = 1_000;
/// Records of rows that are not marked when they are read. Relays have a few thousand rows in flight,
/// and one replay makes ten thousand pending.
const UNMARKED_MAX: usize = 100_000;
/// Offsets that one run takes on: 512 MiB of bits.
pub const OFFSETS_MAX: u64 = 1 << 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MissingRecord,
    MissingRow,
    Unreadable,
    OtherKey,
    OtherValue,
    OtherPartition,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::MissingRecord,
        Self::MissingRow,
        Self::Unreadable,
        Self::OtherKey,
        Self::OtherValue,
        Self::OtherPartition,
    ];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::MissingRecord => "missing_record",
            Self::MissingRow => "missing_row",
            Self::Unreadable => "unreadable",
            Self::OtherKey => "other_key",
            Self::OtherValue => "other_value",
            Self::OtherPartition => "other_partition",
        }
    }

    pub const fn explained(self) -> &'static str {
        match self {
            Self::MissingRecord => {
                "a row is marked as published, and its record is not there: \
                 publish it again with `oncebox outbox replay`"
            }
            Self::MissingRow => "a record is of an event that the outbox does not have",
            Self::Unreadable => "a record does not say which event it is: it is not the relay's",
            Self::OtherKey => "a record has another key than its row",
            Self::OtherValue => "a record has another value than its row",
            Self::OtherPartition => {
                "a copy that is no replay is on another partition than its row says: \
                 were partitions added to the topic?"
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub kind: Kind,
    pub tenant: Option<String>,
    pub id: Option<Uuid>,
    pub partition: i32,
    pub offset: i64,
}

pub struct Account {
    pub topic: String,
    /// When the run began, by the database's clock.
    pub began: Timestamp,
    /// To read: as many records, but for gaps.
    pub offsets: u64,
    pub records: u64,
    pub rows_proven: u64,
    /// Records of rows that are marked elsewhere: sent twice, or replayed.
    pub copies: u64,
    pub unmarked: u64,
    pub discarded: u64,
    /// Records of rows that retention may have deleted.
    pub removed: u64,
    /// Rows whose records the topic's own retention has deleted.
    pub rows_before_topic: u64,
    /// Since when the topic has everything; `None`: it has lost nothing.
    pub topic_since: Option<Timestamp>,
    /// The first [`NAMED_MAX`].
    pub named: Vec<Difference>,
    counts: [u64; Kind::ALL.len()],
    parts: HashMap<i32, Part>,
    unmarked_at: HashMap<(i32, i64), Uuid>,
}

/// A partition, and a bit for each of its offsets that are read: the record there is that of the row
/// that is marked with this place.
struct Part {
    range: Range,
    proven: Vec<u64>,
    has_records: bool,
}

impl Account {
    /// # Errors
    /// How many offsets there are, when they are more than [`OFFSETS_MAX`].
    pub fn new(topic: &str, began: Timestamp, ranges: HashMap<i32, Range>) -> Result<Self, u64> {
        let offsets = ranges.values().map(|range| range.end.abs_diff(range.start)).sum();
        if offsets > OFFSETS_MAX {
            return Err(offsets);
        }
        // Where nothing is left, nothing can be proven yet.
        let is_bare = |range: &Range| range.low > 0 && range.low == range.high;
        let topic_since = ranges.values().any(is_bare).then_some(began);
        let part = |range: Range| {
            let offsets = usize::try_from(range.end - range.start).unwrap_or(0);
            Part { range, proven: vec![0; offsets.div_ceil(64)], has_records: false }
        };
        Ok(Self {
            topic: topic.to_owned(),
            began,
            offsets,
            records: 0,
            rows_proven: 0,
            copies: 0,
            unmarked: 0,
            discarded: 0,
            removed: 0,
            rows_before_topic: 0,
            topic_since,
            named: Vec::new(),
            counts: [0; Kind::ALL.len()],
            parts: ranges.into_iter().map(|(number, range)| (number, part(range))).collect(),
            unmarked_at: HashMap::new(),
        })
    }

    /// So much is on its way that memory would have no bound.
    pub fn is_overfull(&self) -> bool {
        self.unmarked_at.len() > UNMARKED_MAX
    }

    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    pub fn differences(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A record that says which event it is.
    pub fn record(&mut self, seen: &Seen, known: Known, removed_before: Option<Timestamp>) {
        self.count_record(seen);
        match known {
            Known::Discarded => self.discarded += 1,
            Known::Nothing if was_removed(seen, removed_before) => self.removed += 1,
            Known::Nothing => self.differ(Kind::MissingRow, seen),
            Known::Row { aggregate_id, payload_sha256, is_replay, published } => {
                let same_key = seen.key.as_deref() == Some(aggregate_id.as_bytes());
                let same_value =
                    seen.value_sha256.is_some_and(|hash| hash.as_slice() == payload_sha256);
                if !same_key {
                    self.differ(Kind::OtherKey, seen);
                }
                if !same_value {
                    self.differ(Kind::OtherValue, seen);
                }
                // Partitions may have been added between the first time and the replay.
                let may_move = is_replay || seen.is_replay;
                self.place(seen, published, same_key && same_value, may_move);
            }
        }
    }

    /// A record that does not.
    pub fn unreadable(&mut self, seen: &Seen) {
        self.count_record(seen);
        self.differ(Kind::Unreadable, seen);
    }

    fn count_record(&mut self, seen: &Seen) {
        self.records += 1;
        let Some(part) = self.parts.get_mut(&seen.partition) else { return };
        let is_first = !std::mem::replace(&mut part.has_records, true);
        if is_first && part.range.low > 0 && part.range.start == part.range.low {
            self.topic_since = self.topic_since.max(seen.at);
        }
    }

    fn place(&mut self, seen: &Seen, published: Option<Place>, is_same: bool, may_move: bool) {
        let Some(place) = published else {
            self.unmarked += 1;
            if is_same && let Some((_, id)) = seen.event {
                self.unmarked_at.insert((seen.partition, seen.offset), id);
            }
            return;
        };
        if place.topic != self.topic
            || (place.partition, place.offset) != (seen.partition, seen.offset)
        {
            self.copies += 1;
            if place.topic == self.topic && place.partition != seen.partition && !may_move {
                self.differ(Kind::OtherPartition, seen);
            }
        } else if let Some(part) = self.parts.get_mut(&seen.partition) {
            part.prove(seen.offset);
        }
    }

    /// A row that was published before the run began.
    pub fn published(&mut self, row: &Published) {
        let Some(place) = row.place.as_ref().filter(|place| place.topic == self.topic) else {
            return;
        };
        let (partition, offset) = (place.partition, place.offset);
        match self.parts.get_mut(&partition).map(|part| part.judge(offset)) {
            Some(Judged::BeforeTopic) => self.rows_before_topic += 1,
            Some(Judged::NotRead) => {}
            Some(Judged::Proven) => self.rows_proven += 1,
            // Marked while the topic was read.
            Some(Judged::Missing)
                if self.unmarked_at.get(&(partition, offset)) == Some(&row.id) =>
            {
                self.rows_proven += 1;
            }
            Some(Judged::Missing) | None => {
                let (tenant, id) = (Some(row.tenant_id.clone()), Some(row.id));
                let kind = Kind::MissingRecord;
                self.name(Difference { kind, tenant, id, partition, offset });
            }
        }
    }

    fn differ(&mut self, kind: Kind, seen: &Seen) {
        let (tenant, id) = seen.event.clone().unzip();
        let (partition, offset) = (seen.partition, seen.offset);
        self.name(Difference { kind, tenant, id, partition, offset });
    }

    fn name(&mut self, difference: Difference) {
        self.counts[difference.kind as usize] += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(difference);
        }
    }
}

/// Its row was published early enough for retention to have deleted it.
fn was_removed(seen: &Seen, removed_before: Option<Timestamp>) -> bool {
    let latest = removed_before.and_then(|before| before.checked_add(CLOCKS_APART).ok());
    latest.zip(seen.at).is_some_and(|(latest, at)| at < latest)
}

enum Judged {
    Proven,
    Missing,
    /// Outside of the times that were asked for.
    NotRead,
    BeforeTopic,
}

impl Part {
    fn prove(&mut self, offset: i64) {
        if let Some((word, bit)) = self.bit(offset) {
            self.proven[word] |= bit;
        }
    }

    /// A record proves one row: of two rows that say the same place, the second is not proven.
    fn judge(&mut self, offset: i64) -> Judged {
        let Range { low, start, end, high } = self.range;
        match self.bit(offset) {
            Some((word, bit)) if self.proven[word] & bit != 0 => {
                self.proven[word] &= !bit;
                Judged::Proven
            }
            Some(_) => Judged::Missing,
            None if offset < low => Judged::BeforeTopic,
            None if offset < start || (end..high).contains(&offset) => Judged::NotRead,
            // Beyond the topic's end, though it was acknowledged before that was asked for.
            None => Judged::Missing,
        }
    }

    fn bit(&self, offset: i64) -> Option<(usize, u64)> {
        let Range { start, end, .. } = self.range;
        let index = usize::try_from(offset - start).ok().filter(|_| offset < end)?;
        Some((index / 64, 1 << (index % 64)))
    }
}
