//! How long to wait before the next try: doubling, capped, with jitter, so that relays that failed
//! together do not come back together.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, failures: 0 }
    }

    /// The pause after one more failure: between half of it and all of it.
    pub fn next(&mut self) -> Duration {
        let full = self.first.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        // Each hasher has new random keys; no crate is needed for a jitter.
        let random = RandomState::new().build_hasher().finish();
        let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        full.mul_f64(0.5 + share / 2.0)
    }

    pub fn reset(&mut self) {
        self.failures = 0;
    }
}
