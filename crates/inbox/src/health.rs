//! Readiness: can this process apply events? It looks by itself, since a consumer without records
//! would not notice what is away.

use std::sync::Arc;
use std::time::Duration;

use store::{Pool, migrate};
use telemetry::{Condition, Readiness};
use tokio::time::{MissedTickBehavior, interval};

use crate::group_member::GroupMember;

/// Costs no query: it reads what the client has noted.
const MEMBER_INTERVAL: Duration = Duration::from_millis(250);
/// One small query.
const DATABASE_INTERVAL: Duration = Duration::from_secs(2);

pub struct Health {
    database: Condition,
    kafka: Condition,
    stalled_after: Duration,
}

impl Health {
    /// `stalled_after` is the age of the last poll at which the loop counts as stuck.
    pub fn new(readiness: &Readiness, stalled_after: Duration) -> Self {
        let (database, kafka) = (readiness.condition("database"), readiness.condition("kafka"));
        Self { database, kafka, stalled_after }
    }

    /// Looks until it is dropped.
    pub async fn watch(&self, pool: &Pool, member: &Arc<GroupMember>) {
        tokio::join!(self.watch_database(pool), self.watch_member(member));
    }

    async fn watch_database(&self, pool: &Pool) {
        let mut ticks = interval(DATABASE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match migrate::is_current(pool).await {
                Ok(true) => self.database.set(true),
                Ok(false) => self.database.set_false("the schema is older than this binary"),
                Err(error) => self.database.set_false(error.to_string()),
            }
        }
    }

    async fn watch_member(&self, member: &Arc<GroupMember>) {
        let mut ticks = interval(MEMBER_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match member.trouble(self.stalled_after) {
                None => self.kafka.set(true),
                Some(reason) => self.kafka.set_false(reason),
            }
        }
    }
}
