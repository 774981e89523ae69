//! How far each bucket was read, so that a read need not begin at the start of the table's past.
//!
//! A transaction may commit a row after rows with a higher seq were read, so where a read begins
//! is only ever a matter of cost, never of what is published: while reads keep up they begin where
//! reading was a quarter of a second ago, which covers almost every late commit, and about once a
//! second a sweep looks for pending rows that were passed over.
//!
//! Without a low bound, each read would walk over every index entry that vacuum cannot remove yet:
//! with a long-running reader elsewhere that falls from 55k to 6.6k rows a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use store::outbox::relay::{OutboxRecord, ReadUpTo, Want};

use crate::in_flight::ReadAgain;

/// How long reads look back. A charge's transaction takes milliseconds; a slower one waits for the
/// sweep.
const LOOK_BACK: Duration = Duration::from_millis(250);
/// A bucket without a backlog is asked for this many rows while others have one.
const QUIET_ROWS: usize = 8;

#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    /// The highest seq read.
    front: i64,
    /// Where `front` was between one and two look-backs ago.
    low: i64,
    low_next: i64,
    /// The last read got all it asked for: there is more.
    more: bool,
}

/// The reach of every bucket that the relay may send from.
#[derive(Debug)]
pub struct Reaches {
    buckets: BTreeMap<i16, Reach>,
    turn_at: Instant,
    /// Which bucket is asked for first: where the bound on bytes cuts an answer changes with it.
    first: usize,
}

impl Reaches {
    pub fn new(now: Instant) -> Self {
        Self { buckets: BTreeMap::new(), turn_at: now + LOOK_BACK, first: 0 }
    }

    /// Exactly these buckets from now on; a new one is read from its start.
    pub fn keep(&mut self, usable: &BTreeMap<i16, i64>) {
        self.buckets.retain(|bucket, _| usable.contains_key(bucket));
        for bucket in usable.keys() {
            self.buckets.entry(*bucket).or_default();
        }
    }

    /// Lets the low bounds follow. Call it before each read.
    pub fn turn(&mut self, now: Instant) {
        if now < self.turn_at {
            return;
        }
        self.turn_at = now + LOOK_BACK;
        for reach in self.buckets.values_mut() {
            reach.low = reach.low_next;
            reach.low_next = reach.front;
        }
    }

    /// What to read, at most `rows_max` rows in all: the buckets with a backlog share them. With
    /// fewer rows than buckets, one bucket after the other gets its turn.
    pub fn wants(&mut self, rows_max: usize) -> Vec<Want> {
        let count = self.buckets.len();
        if count == 0 {
            return Vec::new();
        }
        let busy = self.buckets.values().filter(|reach| reach.more).count();
        let quiet = count - busy;
        let quiet_rows = match busy {
            0 => rows_max / count,
            // However few rows there are, the backlog gets half of them.
            _ => QUIET_ROWS.min(rows_max / count / 2),
        };
        let quiet_rows = quiet_rows.max(1);
        let busy_rows = (rows_max.saturating_sub(quiet_rows * quiet) / busy.max(1)).max(1);
        self.first = (self.first + 1) % count;
        let turned =
            self.buckets.iter().skip(self.first).chain(self.buckets.iter().take(self.first));
        let mut left = rows_max;
        let wants = turned.map(|(bucket, reach)| {
            let rows = left.min(if reach.more { busy_rows } else { quiet_rows });
            left -= rows;
            Want {
                bucket: *bucket,
                after_seq: if reach.more { reach.front } else { reach.low },
                rows_max: i32::try_from(rows).unwrap_or(i32::MAX),
            }
        });
        wants.filter(|want| want.rows_max > 0).collect()
    }

    /// There is nothing to read from.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// What came of it. Returns whether there is more to read at once.
    pub fn advance(&mut self, wants: &[Want], records: &[OutboxRecord]) -> bool {
        let mut got: BTreeMap<i16, (i32, i64)> = BTreeMap::new();
        for record in records {
            let (rows, last) = got.entry(record.bucket).or_default();
            *rows += 1;
            *last = record.seq.max(*last);
        }
        let mut more = false;
        for want in wants {
            let Some(reach) = self.buckets.get_mut(&want.bucket) else { continue };
            let (rows, last) = got.get(&want.bucket).copied().unwrap_or_default();
            reach.front = reach.front.max(last);
            reach.more = rows >= want.rows_max;
            more |= reach.more;
        }
        more
    }

    /// Reads the bucket from here again.
    pub fn rewind(&mut self, again: ReadAgain) {
        let Some(reach) = self.buckets.get_mut(&again.bucket) else { return };
        let before = again.seq - 1;
        reach.front = reach.front.min(before);
        reach.low = reach.low.min(before);
        reach.low_next = reach.low_next.min(before);
    }

    /// What a sweep is to look through: more rows than are in memory means one was passed over.
    pub fn read_up_to(&self, in_memory: impl Fn(i16) -> usize) -> Vec<ReadUpTo> {
        let reaches = self.buckets.iter().filter(|(_, reach)| reach.front > 0);
        let up_to = reaches.map(|(bucket, reach)| ReadUpTo {
            bucket: *bucket,
            seq: reach.front,
            rows_max: i32::try_from(in_memory(*bucket) + 1).unwrap_or(i32::MAX),
        });
        up_to.collect()
    }
}

#[cfg(test)]
mod tests;
