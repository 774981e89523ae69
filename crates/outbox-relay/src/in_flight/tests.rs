use std::time::{Duration, Instant};

use store::outbox::relay::OutboxRecord;
use uuid::Uuid;

use super::{Admitted, InFlight, LANE_ROWS_MAX, ReadAgain};
use crate::publisher::Placed;
use crate::settings::Ordering;

const PLACED: Placed = Placed { partition: 0, offset: 0 };

fn record(seq: i64, aggregate: &str) -> OutboxRecord {
    OutboxRecord {
        tenant_id: "default".into(),
        id: Uuid::nil(),
        seq,
        bucket: 3,
        aggregate_id: aggregate.into(),
        aggregate_version: None,
        event_type: "E".into(),
        payload: Some(vec![0; 10]),
        payload_bytes: 10,
        headers: None,
        created_at: "2026-11-30T00:00:00Z".parse().unwrap(),
        age: Duration::ZERO,
    }
}

fn admit(rows: &mut InFlight, seq: i64, aggregate: &str) -> Admitted {
    rows.admit(record(seq, aggregate), 1, Instant::now())
}

/// Sends all that may be sent.
fn send(rows: &mut InFlight) -> Vec<i64> {
    let mut sent = Vec::new();
    while let Some(row) = rows.next_ready() {
        let seq = row.record.seq;
        rows.sent(seq, Instant::now());
        sent.push(seq);
    }
    sent
}

fn acknowledge_and_mark(rows: &mut InFlight, seq: i64) -> Vec<ReadAgain> {
    assert!(rows.acknowledged(seq, PLACED).is_some());
    rows.marked(&[seq])
}

#[test]
fn the_next_row_of_an_aggregate_is_ready_once_the_one_before_is_marked() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for (seq, aggregate) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
        assert_eq!(admit(&mut rows, seq, aggregate), Admitted::Yes);
    }
    assert_eq!(send(&mut rows), [1, 3]);
    assert!(rows.acknowledged(1, PLACED).is_some());
    assert!(send(&mut rows).is_empty());
    assert_eq!(rows.marked(&[1]), []);
    assert_eq!(send(&mut rows), [2]);
    acknowledge_and_mark(&mut rows, 2);
    assert_eq!(send(&mut rows), [4]);
    acknowledge_and_mark(&mut rows, 4);
    acknowledge_and_mark(&mut rows, 3);
    assert_eq!((rows.rows(), rows.bytes(), rows.sent_rows(), rows.bucket_rows(3)), (0, 0, 0, 0));
}

#[test]
fn without_an_order_no_row_waits_for_another() {
    let mut rows = InFlight::new(Ordering::None);
    for (seq, aggregate) in [(1, "a"), (2, "a"), (3, "a")] {
        admit(&mut rows, seq, aggregate);
    }
    assert_eq!(send(&mut rows), [1, 2, 3]);
    assert_eq!(rows.failed(2), Some(ReadAgain { bucket: 3, seq: 2 }));
    assert_eq!((rows.rows(), rows.sent_rows()), (2, 2));
}

#[test]
fn a_row_is_known_until_its_mark_is_committed() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    admit(&mut rows, 1, "a");
    send(&mut rows);
    assert_eq!(admit(&mut rows, 1, "a"), Admitted::Known);
    rows.acknowledged(1, PLACED);
    assert_eq!(admit(&mut rows, 1, "a"), Admitted::Known);
    rows.marked(&[1]);
    assert_eq!(admit(&mut rows, 1, "a"), Admitted::Yes);
}

#[test]
fn rows_that_are_read_out_of_order_are_sent_in_order() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for seq in [5, 2, 9, 7] {
        admit(&mut rows, seq, "a");
    }
    assert_eq!(send(&mut rows), [2]);
    // Even one that comes late stays behind the row that is on its way.
    admit(&mut rows, 1, "a");
    for expected in [1, 5, 7, 9] {
        let sent =
            *[2, 1, 5, 7].iter().find(|seq| rows.acknowledged(**seq, PLACED).is_some()).unwrap();
        assert!(sent < expected || (sent, expected) == (2, 1));
        rows.marked(&[sent]);
        assert_eq!(send(&mut rows), [expected]);
    }
}

#[test]
fn a_failed_row_takes_its_aggregate_with_it_to_be_read_again() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for (seq, aggregate) in [(1, "a"), (2, "a"), (3, "b")] {
        admit(&mut rows, seq, aggregate);
    }
    send(&mut rows);
    assert_eq!(rows.failed(1), Some(ReadAgain { bucket: 3, seq: 1 }));
    assert_eq!(rows.rows(), 1);
    // Read again, it is sent again, before the other.
    admit(&mut rows, 1, "a");
    admit(&mut rows, 2, "a");
    assert_eq!(send(&mut rows), [1]);
}

#[test]
fn a_parked_row_takes_the_rest_of_its_aggregate_out_of_memory() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for (seq, aggregate) in [(1, "a"), (2, "a"), (3, "b")] {
        admit(&mut rows, seq, aggregate);
    }
    rows.refused(1, "too large".into());
    // Held until the park is committed: what a read brings meanwhile waits behind it.
    admit(&mut rows, 4, "a");
    assert_eq!(send(&mut rows), [3]);
    assert_eq!(rows.to_park(10).len(), 1);
    assert_eq!(rows.parked(&[1]), [ReadAgain { bucket: 3, seq: 1 }]);
    assert_eq!(rows.rows(), 1);
    assert!(!rows.has_unwritten());
}

#[test]
fn leaving_a_bucket_keeps_only_what_kafka_has() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for (seq, aggregate) in [(1, "a"), (2, "a"), (3, "b"), (4, "c")] {
        admit(&mut rows, seq, aggregate);
    }
    rows.refused(4, "no".into());
    let seq = rows.next_ready().unwrap().record.seq;
    rows.sent(seq, Instant::now());
    rows.leave(|bucket| bucket == 4);
    assert_eq!(rows.rows(), 4);
    rows.leave(|bucket| bucket == 3);
    assert_eq!((rows.rows(), rows.sent_rows(), rows.bucket_rows(3)), (1, 1, 1));
    assert!(!rows.has_unwritten());
    acknowledge_and_mark(&mut rows, seq);
    assert_eq!(rows.rows(), 0);
}

#[test]
fn an_aggregate_with_too_many_rows_continues_from_the_table() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    let full = i64::try_from(LANE_ROWS_MAX).unwrap();
    for seq in 1..=full {
        assert_eq!(admit(&mut rows, seq, "a"), Admitted::Yes);
    }
    assert_eq!(admit(&mut rows, full + 1, "a"), Admitted::No);
    // A later one must not overtake those that wait in the table, though there is room again.
    send(&mut rows);
    assert_eq!(acknowledge_and_mark(&mut rows, 1), []);
    assert_eq!(admit(&mut rows, full + 2, "a"), Admitted::No);
    for seq in 2..full {
        send(&mut rows);
        assert_eq!(acknowledge_and_mark(&mut rows, seq), []);
    }
    send(&mut rows);
    let again = ReadAgain { bucket: 3, seq: full + 1 };
    assert_eq!(acknowledge_and_mark(&mut rows, full), [again]);
}

#[test]
fn rows_of_a_producer_that_is_gone_are_read_again_and_acknowledged_ones_are_not() {
    let mut rows = InFlight::new(Ordering::Aggregate);
    for (seq, aggregate) in [(1, "a"), (2, "b"), (3, "b")] {
        admit(&mut rows, seq, aggregate);
    }
    send(&mut rows);
    rows.acknowledged(1, PLACED);
    assert_eq!(rows.abandon_sent(), [ReadAgain { bucket: 3, seq: 2 }]);
    assert_eq!(rows.to_mark(10).len(), 1);
    assert_eq!((rows.rows(), rows.sent_rows()), (1, 0));
}
