use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use store::outbox::relay::{OutboxRecord, Want};
use uuid::Uuid;

use super::{LOOK_BACK, Reaches};
use crate::in_flight::ReadAgain;

fn record(bucket: i16, seq: i64) -> OutboxRecord {
    OutboxRecord {
        tenant_id: "default".into(),
        id: Uuid::nil(),
        seq,
        bucket,
        aggregate_id: "a".into(),
        aggregate_version: None,
        event_type: "E".into(),
        payload: None,
        payload_bytes: 0,
        headers: None,
        created_at: "2026-11-30T00:00:00Z".parse().unwrap(),
        age: Duration::ZERO,
    }
}

fn reaches(now: Instant, buckets: i16) -> Reaches {
    let mut reaches = Reaches::new(now);
    reaches.keep(&(0..buckets).map(|bucket| (bucket, 1)).collect::<BTreeMap<_, _>>());
    reaches
}

fn want_of(reaches: &mut Reaches, bucket: i16, rows_max: usize) -> Want {
    reaches.wants(rows_max).into_iter().find(|want| want.bucket == bucket).unwrap()
}

#[test]
fn a_bucket_that_keeps_up_is_read_from_where_reading_was_a_look_back_ago() {
    let start = Instant::now();
    let mut reaches = reaches(start, 1);
    let want = want_of(&mut reaches, 0, 100);
    assert_eq!(want.after_seq, 0);
    reaches.advance(&[want], &[record(0, 10)]);
    assert_eq!(want_of(&mut reaches, 0, 100).after_seq, 0);
    reaches.turn(start + LOOK_BACK);
    assert_eq!(want_of(&mut reaches, 0, 100).after_seq, 0);
    reaches.turn(start + LOOK_BACK * 2);
    assert_eq!(want_of(&mut reaches, 0, 100).after_seq, 10);
}

#[test]
fn a_bucket_with_a_backlog_is_read_on_from_its_front_and_gets_most_of_the_rows() {
    let mut reaches = reaches(Instant::now(), 2);
    let wants = reaches.wants(4);
    assert!(reaches.advance(&wants, &[record(0, 10), record(0, 11), record(1, 12)]));
    let want = want_of(&mut reaches, 0, 100);
    assert_eq!((want.after_seq, want.rows_max), (11, 92));
    assert_eq!(want_of(&mut reaches, 1, 100).rows_max, 8);
}

#[test]
fn all_that_is_asked_for_is_never_more_than_there_is_room_for() {
    let mut reaches = reaches(Instant::now(), 32);
    for rows_max in [0, 1, 31, 32, 33, 100, 1000] {
        let wants = reaches.wants(rows_max);
        assert!(
            wants.iter().map(|want| want.rows_max).sum::<i32>() <= i32::try_from(rows_max).unwrap()
        );
        let busy: Vec<_> = (0..5).map(|bucket| record(bucket, 1)).collect();
        let ask = (0..5).map(|bucket| Want { bucket, after_seq: 0, rows_max: 1 });
        reaches.advance(&ask.collect::<Vec<_>>(), &busy);
    }
}

/// One would make the relay ask again at once, and for ever.
#[test]
fn while_there_is_room_a_read_is_never_of_nothing_and_every_bucket_gets_its_turn() {
    let mut reaches = reaches(Instant::now(), 32);
    let ask = |bucket| Want { bucket, after_seq: 0, rows_max: 1 };
    for busy in [0, 1, 31, 32] {
        let wants: Vec<Want> = (0..busy).map(ask).collect();
        reaches.advance(&wants, &(0..busy).map(|bucket| record(bucket, 1)).collect::<Vec<_>>());
        for rows_max in 1..64 {
            let mut asked = BTreeSet::new();
            for _ in 0..32 {
                let wants = reaches.wants(rows_max);
                assert!(!wants.is_empty(), "{busy} busy, {rows_max} rows");
                asked.extend(wants.iter().map(|want| want.bucket));
            }
            assert_eq!(asked.len(), 32, "{busy} busy, {rows_max} rows");
        }
    }
}

#[test]
fn a_row_to_be_read_again_moves_every_bound_back() {
    let start = Instant::now();
    let mut reaches = reaches(start, 1);
    let want = want_of(&mut reaches, 0, 100);
    reaches.advance(&[want], &[record(0, 10), record(0, 20)]);
    for turn in 1..=2 {
        reaches.turn(start + LOOK_BACK * turn);
    }
    reaches.rewind(ReadAgain { bucket: 0, seq: 15 });
    assert_eq!(want_of(&mut reaches, 0, 100).after_seq, 14);
    assert_eq!(reaches.read_up_to(|_| 0)[0].seq, 14);
    // For a bucket that is not ours any more it means nothing.
    reaches.rewind(ReadAgain { bucket: 9, seq: 1 });
}

#[test]
fn a_bucket_that_comes_back_is_read_from_its_start() {
    let mut reaches = reaches(Instant::now(), 1);
    let want = want_of(&mut reaches, 0, 1);
    reaches.advance(&[want], &[record(0, 10)]);
    reaches.keep(&BTreeMap::new());
    assert!(reaches.wants(100).is_empty());
    reaches.keep(&BTreeMap::from([(0, 2)]));
    assert_eq!(want_of(&mut reaches, 0, 100).after_seq, 0);
}

#[test]
fn a_sweep_looks_for_one_row_more_than_is_in_memory() {
    let mut reaches = reaches(Instant::now(), 2);
    let wants = reaches.wants(100);
    reaches.advance(&wants, &[record(1, 10)]);
    let sweep = reaches.read_up_to(|_| 7);
    // The other bucket was read up to nothing.
    assert_eq!((sweep.len(), sweep[0].bucket, sweep[0].seq, sweep[0].rows_max), (1, 1, 10, 8));
}
