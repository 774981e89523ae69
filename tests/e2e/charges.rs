//! Charges of a load, each of which must be acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use harness::answers::Answers;
use harness::client::Client;
use uuid::Uuid;

/// Between two charges of a load.
const PAUSE: Duration = Duration::from_millis(20);

pub async fn charge(api: &str, answers: &Answers) -> Result<()> {
    let key = Uuid::new_v4();
    let answer = Client::default().charge(api, key, 4900).await?;
    ensure!(answer.status == 201, "answered {}", answer.status);
    answers.note(key, 4900, &answer);
    Ok(())
}

/// One after the other, until it is over.
pub async fn charge_until(api: &str, answers: &Answers, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        charge(api, answers).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
