//! Whether the relay's loop goes round: the condition `loop` of readiness.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use telemetry::Condition;

/// The longest a round may take: a statement that runs into its time-out, and then some.
const ROUND_MAX: Duration = Duration::from_secs(30);
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Pulse(Mutex<Option<Instant>>);

impl Pulse {
    pub fn beat(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches for ever.
    pub async fn watch(&self, condition: Condition) {
        loop {
            match self.last() {
                Some(last) if last.elapsed() < ROUND_MAX => condition.set(true),
                Some(_) => condition.set_false("the relay's loop stands still"),
                None => {}
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }
}
