//! Whether this process should get work: named conditions that its parts set. It says nothing
//! about being alive: a process that waits for its database is alive and not ready.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All conditions of a process; ready when every one holds.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Vec<State>>>,
}

#[derive(Debug)]
struct State {
    name: &'static str,
    /// Why the condition does not hold; `None` when it does.
    reason: Option<String>,
}

/// One condition, in the hands of the part that knows.
#[derive(Debug, Clone)]
pub struct Condition {
    readiness: Readiness,
    index: usize,
}

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition, which does not hold until it is set.
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut conditions = self.lock();
        conditions.push(State { name, reason: Some("not yet known".into()) });
        Condition { readiness: self.clone(), index: conditions.len() - 1 }
    }

    /// Name and reason of each condition that does not hold.
    pub fn failing(&self) -> Vec<(&'static str, String)> {
        let conditions = self.lock();
        let failing =
            conditions.iter().filter_map(|state| Some((state.name, state.reason.clone()?)));
        failing.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        // Each change is one assignment, so a panic elsewhere leaves nothing half done.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Condition {
    pub fn set(&self, holds: bool) {
        self.change((!holds).then(|| "not ready".to_owned()));
    }

    /// The reason is shown to whoever asks the admin port: no secrets.
    pub fn set_false(&self, reason: impl Into<String>) {
        self.change(Some(reason.into()));
    }

    fn change(&self, reason: Option<String>) {
        let (name, before) = {
            let state = &mut self.readiness.lock()[self.index];
            (state.name, std::mem::replace(&mut state.reason, reason.clone()))
        };
        match (before, reason) {
            (Some(_), None) => tracing::info!(condition = name, "condition holds"),
            (None, Some(reason)) => tracing::warn!(condition = name, reason, "condition fails"),
            // Only transitions are worth a line.
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}
