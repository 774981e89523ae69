//! The rows in memory, from being read to being marked or parked. At most one row of a lane is
//! unsettled with Kafka; the later ones wait behind it, in the order of seq. A lane is an aggregate,
//! or where no order is asked for, each row has its own.
//!
//! A row counts as settled once its mark is committed, not when Kafka acknowledges it: so a relay
//! that dies leaves at most one row of an aggregate published and unmarked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use store::outbox::relay::OutboxRecord;

use crate::publisher::Placed;
use crate::settings::Ordering;

/// Most rows of one aggregate in memory. It sends a few hundred a second, so this is enough to
/// keep it going, and one busy aggregate cannot fill the memory.
const LANE_ROWS_MAX: usize = 256;

/// The rows that keep their order. Two aggregates whose hashes collide share one, which costs them speed
/// and nothing else.
type LaneKey = u64;

#[derive(Debug, Default)]
struct Lane {
    /// By seq; the first is the head, the only one that may be sent.
    seqs: VecDeque<i64>,
    /// The first row that found no room. Those after it must wait in the table with it.
    overflow: Option<i64>,
}

/// How far a row has come.
#[derive(Debug)]
pub enum Stage {
    /// Not sent.
    Read,
    /// Handed to the Kafka client.
    Sent { at: Instant },
    /// To be marked.
    Acknowledged(Placed),
    /// To be parked, for this reason.
    Refused(String),
}

#[derive(Debug)]
pub struct Row {
    /// Its payload is gone once it is sent.
    pub record: OutboxRecord,
    /// The epoch of the lease under which it was read.
    pub epoch: i64,
    /// When the row was created, on this process's clock.
    pub born: Instant,
    pub stage: Stage,
    lane: LaneKey,
}

/// What became of a row that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    Yes,
    /// It is in memory already.
    Known,
    /// Its aggregate has no room left.
    No,
}

/// Rows that left memory while still pending: their bucket must be read again from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAgain {
    pub bucket: i16,
    pub seq: i64,
}

pub struct InFlight {
    ordering: Ordering,
    rows: HashMap<i64, Row>,
    lanes: HashMap<LaneKey, Lane>,
    /// Lanes whose head may be unsent; an entry may be out of date.
    ready: VecDeque<LaneKey>,
    buckets: BTreeMap<i16, usize>,
    /// By seq, so that relays that mark the same rows do so in one order and cannot deadlock.
    acknowledged: BTreeSet<i64>,
    refused: Vec<i64>,
    sent: usize,
    bytes: usize,
    hasher: RandomState,
}

impl InFlight {
    pub fn new(ordering: Ordering) -> Self {
        Self {
            ordering,
            rows: HashMap::new(),
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            buckets: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            refused: Vec::new(),
            sent: 0,
            bytes: 0,
            hasher: RandomState::new(),
        }
    }

    /// Takes a row that was read.
    pub fn admit(&mut self, record: OutboxRecord, epoch: i64, born: Instant) -> Admitted {
        let (seq, bucket) = (record.seq, record.bucket);
        if self.rows.contains_key(&seq) {
            return Admitted::Known;
        }
        let key = match self.ordering {
            Ordering::Aggregate => self.hasher.hash_one((&record.tenant_id, &record.aggregate_id)),
            Ordering::None => self.hasher.hash_one(seq),
        };
        let lane = self.lanes.entry(key).or_default();
        if lane.overflow.is_some() || lane.seqs.len() >= LANE_ROWS_MAX {
            lane.overflow = Some(lane.overflow.map_or(seq, |first| first.min(seq)));
            return Admitted::No;
        }
        // Almost always at the end. A head that is on its way keeps its place whatever comes.
        let head_is_fixed = lane.seqs.front().is_some_and(|head| {
            self.rows.get(head).is_some_and(|row| !matches!(row.stage, Stage::Read))
        });
        let movable = lane.seqs.iter().skip(head_is_fixed.into());
        let after = movable.rev().take_while(|other| **other > seq).count();
        lane.seqs.insert(lane.seqs.len() - after, seq);
        if lane.seqs.len() == 1 {
            self.ready.push_back(key);
        }
        self.bytes += record.payload_bytes;
        *self.buckets.entry(bucket).or_default() += 1;
        self.rows.insert(seq, Row { record, epoch, born, stage: Stage::Read, lane: key });
        Admitted::Yes
    }

    /// The next row that may be sent, until it is sent, refused or left out.
    pub fn next_ready(&mut self) -> Option<&Row> {
        while let Some(key) = self.ready.front() {
            let head = self.lanes.get(key).and_then(|lane| lane.seqs.front().copied());
            if let Some(head) = head
                && self.rows.get(&head).is_some_and(|row| matches!(row.stage, Stage::Read))
            {
                return self.rows.get(&head);
            }
            self.ready.pop_front();
        }
        None
    }

    /// The row was handed to the Kafka client, which has its own copy of the payload.
    pub fn sent(&mut self, seq: i64, at: Instant) {
        let Some(row) = self.rows.get_mut(&seq) else { return };
        row.record.payload = None;
        row.record.headers = None;
        row.stage = Stage::Sent { at };
        self.sent += 1;
    }

    /// Kafka has it. Gives the row as it was sent.
    pub fn acknowledged(&mut self, seq: i64, placed: Placed) -> Option<(&Row, Instant)> {
        let row = self.rows.get_mut(&seq)?;
        let Stage::Sent { at } = row.stage else { return None };
        row.stage = Stage::Acknowledged(placed);
        self.sent -= 1;
        self.acknowledged.insert(seq);
        Some((row, at))
    }

    /// It can never be sent.
    pub fn refused(&mut self, seq: i64, reason: String) {
        let Some(row) = self.rows.get_mut(&seq) else { return };
        if let Stage::Sent { .. } = row.stage {
            self.sent -= 1;
        }
        row.stage = Stage::Refused(reason);
        self.refused.push(seq);
    }

    /// It was not published: its aggregate leaves memory as a whole and is read again, head first.
    pub fn failed(&mut self, seq: i64) -> Option<ReadAgain> {
        let lane = self.rows.get(&seq)?.lane;
        self.forget_lane(lane)
    }

    /// Up to `rows_max` rows to be marked, by seq.
    pub fn to_mark(&self, rows_max: usize) -> Vec<&Row> {
        self.acknowledged.iter().take(rows_max).filter_map(|seq| self.rows.get(seq)).collect()
    }

    pub fn to_park(&self, rows_max: usize) -> Vec<&Row> {
        self.refused.iter().take(rows_max).filter_map(|seq| self.rows.get(seq)).collect()
    }

    /// Their marks are committed: the next of each aggregate may go.
    pub fn marked(&mut self, seqs: &[i64]) -> Vec<ReadAgain> {
        let was_here = seqs.iter().filter(|seq| self.acknowledged.remove(seq)).copied();
        let marked: Vec<i64> = was_here.collect();
        marked.into_iter().filter_map(|seq| self.settled(seq)).collect()
    }

    /// They are parked, or another relay's. Whether the rows behind them wait too, a read tells.
    pub fn parked(&mut self, seqs: &[i64]) -> Vec<ReadAgain> {
        self.refused.retain(|seq| !seqs.contains(seq));
        seqs.iter().filter_map(|seq| self.failed(*seq)).collect()
    }

    fn settled(&mut self, seq: i64) -> Option<ReadAgain> {
        let (lane, bucket) = self.forget_row(seq)?;
        let rest = self.lanes.get_mut(&lane)?;
        rest.seqs.retain(|other| *other != seq);
        if !rest.seqs.is_empty() {
            self.ready.push_back(lane);
            return None;
        }
        let overflow = self.lanes.remove(&lane)?.overflow?;
        Some(ReadAgain { bucket, seq: overflow })
    }

    /// Drops all unsent rows of the buckets for which `gone` says so. What was sent stays: its
    /// acknowledgement will be a fact, whoever owns the bucket then.
    pub fn leave(&mut self, gone: impl Fn(i16) -> bool) {
        if !self.buckets.keys().any(|bucket| gone(*bucket)) {
            return;
        }
        let unsent: HashSet<i64> = self
            .rows
            .values()
            .filter(|row| gone(row.record.bucket))
            .filter(|row| matches!(row.stage, Stage::Read | Stage::Refused(_)))
            .map(|row| row.record.seq)
            .collect();
        self.refused.retain(|seq| !unsent.contains(seq));
        for seq in &unsent {
            self.forget_row(*seq);
        }
        self.lanes.retain(|_, lane| {
            lane.seqs.retain(|seq| !unsent.contains(seq));
            !lane.seqs.is_empty()
        });
    }

    /// Forgets everything that is not acknowledged: nobody will report on it any more.
    pub fn abandon_sent(&mut self) -> Vec<ReadAgain> {
        let sent: Vec<i64> = self
            .rows
            .values()
            .filter(|row| matches!(row.stage, Stage::Sent { .. }))
            .map(|row| row.record.seq)
            .collect();
        sent.into_iter().filter_map(|seq| self.failed(seq)).collect()
    }

    /// The first of the rows that must be read again. A lane with a row that Kafka has
    /// acknowledged is never forgotten before its mark, as that row is its head.
    fn forget_lane(&mut self, key: LaneKey) -> Option<ReadAgain> {
        let lane = self.lanes.remove(&key)?;
        let first = lane.seqs.iter().copied().chain(lane.overflow).min()?;
        let mut bucket = None;
        for seq in lane.seqs {
            bucket = self.forget_row(seq).map(|(_, bucket)| bucket).or(bucket);
        }
        Some(ReadAgain { bucket: bucket?, seq: first })
    }

    fn forget_row(&mut self, seq: i64) -> Option<(LaneKey, i16)> {
        let row = self.rows.remove(&seq)?;
        let bucket = row.record.bucket;
        self.bytes -= row.record.payload_bytes;
        if let Stage::Sent { .. } = row.stage {
            self.sent -= 1;
        }
        if let Some(count) = self.buckets.get_mut(&bucket) {
            *count -= 1;
            if *count == 0 {
                self.buckets.remove(&bucket);
            }
        }
        Some((row.lane, bucket))
    }

    pub fn contains(&self, seq: i64) -> bool {
        self.rows.contains_key(&seq)
    }

    /// Rows handed to the Kafka client and not yet settled by it.
    pub fn sent_rows(&self) -> usize {
        self.sent
    }

    /// When the longest-waiting of these was handed over.
    pub fn oldest_sent(&self) -> Option<Instant> {
        let sent = self.rows.values().filter_map(|row| match row.stage {
            Stage::Sent { at } => Some(at),
            Stage::Read | Stage::Acknowledged(_) | Stage::Refused(_) => None,
        });
        sent.min()
    }

    pub fn bucket_rows(&self, bucket: i16) -> usize {
        self.buckets.get(&bucket).copied().unwrap_or_default()
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn has_unwritten(&self) -> bool {
        !self.acknowledged.is_empty() || !self.refused.is_empty()
    }
}

#[cfg(test)]
mod tests;
