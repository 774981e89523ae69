//! The sequence guard: does each aggregate's events come in the order they were written? It only
//! counts; what an anomaly means is for whoever reads the metric. A duplicate is what at-least-once
//! brings with it, a gap or a regression is a fault upstream (or offsets that were moved by hand).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::event::Record;

/// Aggregates that are remembered for each partition, 64 KiB in all. Two with the same place take
/// it from each other, and then an anomaly is missed, never made up.
const AGGREGATES_PER_PARTITION: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anomaly {
    Gap,
    Regression,
    Duplicate,
}

impl Anomaly {
    pub const ALL: [Self; 3] = [Self::Gap, Self::Regression, Self::Duplicate];

    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Regression => "regression",
            Self::Duplicate => "duplicate",
        }
    }
}

#[derive(Debug, Default)]
pub struct SequenceGuard {
    hasher: RandomState,
    seen: HashMap<i32, Box<[Place]>>,
}

/// The last sequence seen of an aggregate; `aggregate` is a hash, and 0 is nobody's.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    aggregate: u64,
    sequence: i64,
}

impl SequenceGuard {
    /// Each record once, in the order of its partition. A record without a key or a sequence tells
    /// nothing, nor does the first one of an aggregate: it may have been read before.
    pub fn observe(&mut self, record: &Record) -> Option<Anomaly> {
        let sequence = record.sequence()?;
        let aggregate = self.hasher.hash_one(record.key.as_deref()?).max(1);
        let places = self
            .seen
            .entry(record.partition)
            .or_insert_with(|| vec![Place::default(); AGGREGATES_PER_PARTITION].into());
        let index = usize::try_from(aggregate % AGGREGATES_PER_PARTITION as u64)
            .expect("invariant: smaller than the number of places");
        let place = &mut places[index];
        let last = (place.aggregate == aggregate).then_some(place.sequence);
        *place = Place { aggregate, sequence: last.map_or(sequence, |last| last.max(sequence)) };
        let last = last?;
        match sequence {
            _ if sequence == last => Some(Anomaly::Duplicate),
            _ if sequence < last => Some(Anomaly::Regression),
            _ if sequence > last.saturating_add(1) => Some(Anomaly::Gap),
            _ => None,
        }
    }

    /// Others read on in these partitions; what was seen of them is out of date when they return.
    pub fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.seen.remove(partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Header;

    fn record(key: &str, sequence: i64) -> Record {
        let value = Some(sequence.to_string().into_bytes());
        Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp: -1,
            key: Some(key.into()),
            headers: vec![Header { name: "ce_sequence".into(), value }],
            payload: None,
        }
    }

    #[test]
    fn gaps_regressions_and_duplicates_are_told_apart() {
        let mut guard = SequenceGuard::default();
        let expected = [
            (5, None),
            (6, None),
            (6, Some(Anomaly::Duplicate)),
            (9, Some(Anomaly::Gap)),
            (7, Some(Anomaly::Regression)),
            (10, None),
        ];
        for (sequence, anomaly) in expected {
            assert_eq!(guard.observe(&record("a", sequence)), anomaly, "{sequence}");
        }
        assert_eq!(guard.observe(&record("b", 1)), None);
    }

    #[test]
    fn a_partition_that_comes_back_starts_anew() {
        let mut guard = SequenceGuard::default();
        guard.observe(&record("a", 1));
        guard.forget(&[0]);
        assert_eq!(guard.observe(&record("a", 9)), None);
    }
}
