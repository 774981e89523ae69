//! How much of the API one tenant may use: requests a second, and keys that are kept.
//!
//! Each process counts for itself. Memory is bounded by the number of tenants, because only an
//! authenticated one is counted.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{Endpoint, Fingerprint, TenantId};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use store::Pool;
use store::idempotency_keys::{self, Probe};
use store::key_lock::KeyLock;
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::committer::Failure;
use crate::create_charge::Command;
use crate::settings::LimitSettings;

/// How old a count of keys may be: other processes write keys too, and the retention job removes
/// them.
const RECOUNT: Duration = Duration::from_secs(10);
/// The same when the count stands at the limit, so that a tenant is let in again soon.
const RECOUNT_AT_LIMIT: Duration = Duration::from_secs(1);

/// When a client should ask again, once its keys are used up: they expire over hours.
const KEYS_RETRY_AFTER: Duration = Duration::from_secs(60);

pub struct Limits {
    requests: Option<DefaultKeyedRateLimiter<TenantId>>,
    clock: DefaultClock,
    live_keys: Option<LiveKeys>,
}

struct LiveKeys {
    max: u32,
    counts: Mutex<HashMap<TenantId, Arc<tokio::sync::Mutex<Count>>>>,
}

#[derive(Default)]
struct Count {
    live: u32,
    at: Option<Instant>,
}

impl Limits {
    pub fn new(settings: &LimitSettings) -> Self {
        let rate = NonZeroU32::new(settings.requests_per_second);
        let burst = NonZeroU32::new(settings.burst);
        let quota = rate.map(|rate| Quota::per_second(rate).allow_burst(burst.unwrap_or(rate)));
        Self {
            requests: quota.map(RateLimiter::keyed),
            clock: DefaultClock::default(),
            live_keys: (settings.live_keys > 0)
                .then(|| LiveKeys { max: settings.live_keys, counts: Mutex::default() }),
        }
    }

    /// Counts a request of this tenant.
    ///
    /// # Errors
    /// [`ApiError::TooManyRequests`] when it comes too soon.
    pub fn admit(&self, tenant: &TenantId) -> Result<(), ApiError> {
        let Some(requests) = &self.requests else { return Ok(()) };
        requests.check_key(tenant).map_err(|not_until| ApiError::TooManyRequests {
            retry_after: not_until.wait_time_from(self.clock.now()),
        })
    }

    /// Counts a key of this tenant. One that is there already is no new one, however many there are.
    ///
    /// # Errors
    /// [`ApiError::TooManyKeys`], or that the database cannot say.
    pub async fn admit_key(&self, pool: &Pool, command: &Command) -> Result<(), ApiError> {
        let Some(keys) = &self.live_keys else { return Ok(()) };
        if keys.has_room(pool, &command.tenant).await? || is_known(pool, command).await? {
            return Ok(());
        }
        Err(ApiError::TooManyKeys { retry_after: KEYS_RETRY_AFTER })
    }
}

impl LiveKeys {
    async fn has_room(&self, pool: &Pool, tenant: &TenantId) -> Result<bool, Failure> {
        let count = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(counts.entry(tenant.clone()).or_default())
        };
        // Held over the question: one request of a tenant asks, the others wait for its answer.
        let mut count = count.lock().await;
        let age_max = if count.live < self.max { RECOUNT } else { RECOUNT_AT_LIMIT };
        if count.at.is_none_or(|at| at.elapsed() >= age_max) {
            let connection = pool.get().await?;
            count.live = idempotency_keys::count(&connection, tenant, self.max).await?;
            count.at = Some(Instant::now());
        }
        let has_room = count.live < self.max;
        // A replay is counted as a new key until the next recount. That errs on the safe side.
        count.live += u32::from(has_room);
        Ok(has_room)
    }
}

async fn is_known(pool: &Pool, command: &Command) -> Result<bool, Failure> {
    let endpoint = Endpoint::CreateCharge;
    let fingerprint = Fingerprint::of_charge(&command.charge);
    let lock = KeyLock::of(&command.tenant, endpoint, command.key, &fingerprint);
    let connection = pool.get().await?;
    let (tenant, key) = (&command.tenant, command.key);
    // A quota excludes tombstones: see `Settings`.
    match idempotency_keys::probe(&connection, tenant, endpoint, key, lock, false).await? {
        Probe::Stored(_) | Probe::SameCommandRuns => Ok(true),
        Probe::Free => Ok(false),
    }
}
