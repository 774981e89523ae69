//! When to read next: at once while there is more, every millisecond while rows keep coming, every
//! five for a while after, and seldom when idle. An empty read costs PostgreSQL about 0.1 ms.

use std::time::{Duration, Instant};

/// After a row, the next is expected soon.
const EAGER: Duration = Duration::from_millis(1);
const EAGER_FOR: Duration = Duration::from_millis(20);
const PATIENT: Duration = Duration::from_millis(5);
const PATIENT_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Pace {
    idle: Duration,
    last_row: Option<Instant>,
    next_read: Instant,
}

impl Pace {
    pub fn new(idle: Duration, now: Instant) -> Self {
        Self { idle, last_row: None, next_read: now }
    }

    /// A read brought rows that were new; `more` of them wait.
    pub fn after_read(&mut self, now: Instant, new_rows: usize, more: bool) {
        if new_rows > 0 {
            self.last_row = Some(now);
        }
        let quiet = self.last_row.map_or(Duration::MAX, |last| now - last);
        let pause = if more && new_rows > 0 {
            Duration::ZERO
        } else if quiet < EAGER_FOR {
            EAGER
        } else if quiet < PATIENT_FOR {
            PATIENT
        } else {
            self.idle
        };
        self.next_read = now + pause.min(self.idle);
    }

    /// Something says that there are rows: read at once.
    pub fn hurry(&mut self, now: Instant) {
        self.next_read = now;
    }

    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next_read
    }

    pub fn next_read(&self) -> Instant {
        self.next_read
    }
}

#[cfg(test)]
mod tests;
