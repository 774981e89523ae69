//! What librdkafka tells its client: partitions that come and go, errors, statistics. It runs inside
//! the poll and must be quick; the loop picks up what it notes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::statistics::{Partition, Statistics};

use crate::metrics::Metrics;

pub struct GroupMember {
    topic: String,
    state: Mutex<State>,
    lag: IntGauge,
    assigned: IntGauge,
}

struct State {
    /// Taken away and not yet told.
    revoked: VecDeque<Vec<i32>>,
    assigned: BTreeSet<i32>,
    paused: BTreeSet<i32>,
    joined: bool,
    /// Why the last connection that failed did, until one holds.
    complaint: Option<String>,
    /// No broker answers, until one does.
    unreachable: Option<String>,
    /// The brokers refuse what is asked of them, until partitions are assigned.
    refused: Option<String>,
    polled: Instant,
}

impl GroupMember {
    pub fn new(topic: &str, metrics: &Metrics) -> Self {
        let state = State {
            revoked: VecDeque::new(),
            assigned: BTreeSet::new(),
            paused: BTreeSet::new(),
            joined: false,
            complaint: None,
            unreachable: None,
            refused: None,
            polled: Instant::now(),
        };
        Self {
            topic: topic.to_owned(),
            state: Mutex::new(state),
            lag: metrics.lag.clone(),
            assigned: metrics.assigned_partitions.clone(),
        }
    }

    /// Why no records come although there may be some; `None` when all is well. A member without a
    /// partition is well: there may be more members than partitions.
    pub fn trouble(&self, stalled_after: Duration) -> Option<String> {
        let state = self.state();
        if state.polled.elapsed() > stalled_after {
            return Some(format!("the poll loop has stood still for {stalled_after:?}"));
        }
        let joining = (!state.joined).then(|| "not yet a member of the group".to_owned());
        state.unreachable.clone().or_else(|| state.refused.clone()).or(joining)
    }

    /// Partitions that were taken away. Called at every poll, so it is the heartbeat too.
    pub(crate) fn next_revoked(&self) -> Option<Vec<i32>> {
        let mut state = self.state();
        state.polled = Instant::now();
        state.revoked.pop_front()
    }

    /// Notes that only `wanted` are paused; returns which have to be paused and resumed for that.
    pub(crate) fn pause_only(&self, wanted: &BTreeSet<i32>) -> (Vec<i32>, Vec<i32>) {
        let mut state = self.state();
        let wanted: BTreeSet<i32> = wanted.intersection(&state.assigned).copied().collect();
        let pause = wanted.difference(&state.paused).copied().collect();
        let resume = state.paused.difference(&wanted).copied().collect();
        state.paused = wanted;
        (pause, resume)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole by itself, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partitions(list: &TopicPartitionList) -> Vec<i32> {
        list.elements().iter().map(|element| element.partition()).collect()
    }

    fn revoke(&self, client: &BaseConsumer<Self>, partitions: Vec<i32>) {
        let mut paused = TopicPartitionList::new();
        {
            let mut state = self.state();
            for partition in &partitions {
                state.assigned.remove(partition);
                if state.paused.remove(partition) {
                    paused.add_partition(&self.topic, *partition);
                }
            }
            self.assigned.set(i64::try_from(state.assigned.len()).unwrap_or(i64::MAX));
            state.revoked.push_back(partitions);
        }
        // librdkafka remembers a pause over a revocation: the partition would come back silent.
        if paused.count() > 0 && client.resume(&paused).is_err() {
            tracing::warn!(?paused, "could not resume partitions that were revoked");
        }
    }

    fn assign(&self, partitions: &[i32]) {
        let mut state = self.state();
        state.joined = true;
        state.unreachable = None;
        if !partitions.is_empty() {
            state.refused = None;
        }
        state.assigned.extend(partitions);
        self.assigned.set(i64::try_from(state.assigned.len()).unwrap_or(i64::MAX));
    }
}

impl ConsumerContext for GroupMember {
    // librdkafka commits the stored offsets of what it gives up, before anybody else starts there.
    fn pre_rebalance(&self, client: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(_) => {}
            Rebalance::Revoke(list) => {
                let partitions = Self::partitions(list);
                tracing::info!(?partitions, lost = client.assignment_lost(), "partitions revoked");
                self.revoke(client, partitions);
            }
            Rebalance::Error(error) => {
                tracing::warn!(%error, "rebalance failed; all partitions are given up");
                let partitions = self.state().assigned.iter().copied().collect();
                self.revoke(client, partitions);
            }
        }
    }

    fn post_rebalance(&self, _client: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            let partitions = Self::partitions(list);
            tracing::info!(?partitions, "partitions assigned");
            self.assign(&partitions);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        match result {
            Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            // The next commit says the same and more; if none comes, records come again.
            Err(error) => tracing::warn!(%error, "offsets not committed"),
        }
    }
}

impl ClientContext for GroupMember {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "kafka");
        let mut state = self.state();
        match error.rdkafka_error_code() {
            // That none is left says less than what became of the last one.
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                state.unreachable = state.complaint.clone().or_else(|| Some(reason.to_owned()));
            }
            Some(
                RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SSL
                | RDKafkaErrorCode::BrokerTransportFailure,
            ) => {
                state.complaint = Some(reason.to_owned());
            }
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed,
            ) => state.refused = Some(reason.to_owned()),
            // One connection of several, or something that the client repairs by itself.
            _ => {}
        }
    }

    fn stats(&self, statistics: Statistics) {
        let mut state = self.state();
        if statistics.brokers.values().any(|broker| broker.state == "UP") {
            state.complaint = None;
            state.unreachable = None;
        }
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let assigned =
            state.assigned.iter().filter_map(|partition| topic.partitions.get(partition));
        self.lag.set(assigned.map(lag).sum());
    }
}

fn lag(partition: &Partition) -> i64 {
    // Negative = not known (yet).
    let settled = partition.stored_offset.max(partition.committed_offset);
    let next = if settled < 0 { partition.lo_offset.max(0) } else { settled };
    (partition.ls_offset - next).max(0)
}
