//! How long to wait before the next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Waits that double from `first` up to `most`.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Backoff {
    /// The wait after the `failures`th failure in a row, of which half is random: consumers that
    /// failed together do not come back together.
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.most);
        // The standard library's only source of randomness; nothing depends on its quality.
        let random = RandomState::new().hash_one(0) >> 32;
        let millis = u64::try_from(full.as_millis()).unwrap_or(u64::MAX) / 2;
        Duration::from_millis(millis + (millis.saturating_mul(random) >> 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_half_of_each_is_random() {
        let backoff =
            Backoff { first: Duration::from_millis(100), most: Duration::from_millis(1000) };
        for (failures, full) in [(1, 100), (2, 200), (3, 400), (5, 1000), (u32::MAX, 1000)] {
            for _ in 0..100 {
                let millis = backoff.after(failures).as_millis();
                assert!((full / 2..=full).contains(&millis), "{failures}: {millis}");
            }
        }
    }
}
