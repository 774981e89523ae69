//! Waiting for something to become true, with a deadline. Tests have no other way to wait.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::POLL;

/// What any step of the system may take on a machine whose cores are busy with other things. A test
/// that passes never waits that long; one that fails says what it waited for.
pub const SOON: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is there; an error is an answer that is not there yet.
///
/// # Errors
/// What was waited for, and the last error, when the time is over.
pub async fn eventually<T>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let last = match probe().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= deadline {
            match last {
                Some(error) => bail!("not within {limit:?}: {what} (last error: {error:#})"),
                None => bail!("not within {limit:?}: {what}"),
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// `eventually` for a plain condition.
///
/// # Errors
/// As [`eventually`].
pub async fn eventually_true(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    eventually(limit, what, async || Ok(probe().await?.then_some(()))).await
}
