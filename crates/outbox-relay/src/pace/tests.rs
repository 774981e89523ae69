use std::time::{Duration, Instant};

use super::Pace;

const IDLE: Duration = Duration::from_millis(100);

#[test]
fn reads_follow_each_other_while_there_is_more_and_slow_down_step_by_step() {
    let start = Instant::now();
    let mut pace = Pace::new(IDLE, start);
    assert!(pace.is_due(start));
    pace.after_read(start, 10, true);
    assert!(pace.is_due(start));

    pace.after_read(start, 10, false);
    let mut now = start;
    let mut reads = Vec::new();
    while now < start + Duration::from_secs(4) {
        let next = pace.next_read();
        reads.push(next - now);
        now = next;
        pace.after_read(now, 0, false);
    }
    for pause in [1, 5, 100] {
        assert!(reads.contains(&Duration::from_millis(pause)), "never {pause} ms");
    }
    assert!(reads.is_sorted(), "it never speeds up without rows");
    // 20 reads at 1 ms, 396 at 5 ms, 20 at 100 ms.
    assert!(reads.len() < 450, "{} reads in four seconds", reads.len());
}

#[test]
fn an_idle_relay_reads_ten_times_a_second_and_hurries_when_told() {
    let start = Instant::now();
    let mut pace = Pace::new(IDLE, start);
    pace.after_read(start, 0, false);
    assert_eq!(pace.next_read(), start + IDLE);
    pace.hurry(start);
    assert!(pace.is_due(start));
}

#[test]
fn rows_that_are_known_already_do_not_make_it_spin() {
    let start = Instant::now();
    let mut pace = Pace::new(IDLE, start);
    pace.after_read(start, 0, true);
    assert!(!pace.is_due(start));
}
