//! The demo's clients: they charge, lose answers, ask again, ask elsewhere, and ask twice at once.
//!
//! Every client ends each of its charges with an acknowledgement: the key makes asking again safe.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::answers::Answers;
use harness::client::{Answer, Client, Parting, charge_request, send_and_leave};
use uuid::Uuid;

/// What happened, for the verdict.
#[derive(Default)]
pub struct Tally {
    pub requests: AtomicU64,
    pub lost: AtomicU64,
    pub retries: AtomicU64,
    pub in_flight: AtomicU64,
    pub refused: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub struct Load<'a> {
    pub apis: Vec<String>,
    pub answers: &'a Answers,
    pub tally: &'a Tally,
}

impl Load<'_> {
    /// One client's whole life: so many charges, a pause after each.
    pub async fn client(&self, number: usize, charges: usize, pause: Duration) -> Result<()> {
        let client = Client::default();
        for index in 0..charges {
            let key = Uuid::new_v4();
            let amount = i64::try_from(100 + (number * 7919 + index * 104_729) % 100_000)?;
            let first = (number + index) % self.apis.len();
            self.one(&client, index, first, key, amount)
                .await
                .with_context(|| format!("client {number}, key {key}"))?;
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// One charge, with the misfortune that its turn brings.
    async fn one(
        &self,
        client: &Client,
        turn: usize,
        first: usize,
        key: Uuid,
        amount: i64,
    ) -> Result<()> {
        let other = (first + 1) % self.apis.len();
        match turn % 10 {
            // The answer is lost; the client cannot know whether it has paid, and asks the other API.
            0 | 5 => {
                let parting = if turn % 10 == 5 { Parting::Close } else { Parting::Reset };
                self.lose(first, key, amount, parting).await;
                self.until_acknowledged(client, other, key, amount).await
            }
            // Asked again although it was answered, and once more with another amount.
            3 => {
                self.until_acknowledged(client, first, key, amount).await?;
                self.until_acknowledged(client, other, key, amount).await?;
                self.other_amount(client, other, key, amount + 1).await
            }
            // Both APIs at once: a client with an impatient double.
            7 => {
                let (one, two) = tokio::join!(
                    self.until_acknowledged(client, first, key, amount),
                    self.until_acknowledged(client, other, key, amount),
                );
                one.and(two)
            }
            _ => self.until_acknowledged(client, first, key, amount).await,
        }
    }

    async fn lose(&self, api: usize, key: Uuid, amount: i64, parting: Parting) {
        count(&self.tally.requests);
        count(&self.tally.lost);
        let address = self.apis[api].trim_start_matches("http://").parse();
        let address = address.expect("invariant: a base URL is an address");
        // A dead API loses the request instead of the answer: it is all the same to the client.
        let _lost_either_way = send_and_leave(address, &charge_request(key, amount), parting).await;
    }

    async fn until_acknowledged(
        &self,
        client: &Client,
        first: usize,
        key: Uuid,
        amount: i64,
    ) -> Result<()> {
        let heard = |answer: &Result<Answer>| {
            count(&self.tally.requests);
            match answer {
                Ok(answer) if answer.status == 201 => self.answers.note(key, amount, answer),
                Ok(answer) if answer.status == 409 => count(&self.tally.in_flight),
                _ => count(&self.tally.retries),
            }
        };
        client.insist(&self.apis, first, (key, amount), heard).await?;
        Ok(())
    }

    /// The same key for another amount must be refused, by whichever API is there.
    async fn other_amount(
        &self,
        client: &Client,
        first: usize,
        key: Uuid,
        amount: i64,
    ) -> Result<()> {
        for attempt in 0..self.apis.len() {
            let api = &self.apis[(first + attempt) % self.apis.len()];
            count(&self.tally.requests);
            let Ok(answer) = client.charge(api, key, amount).await else { continue };
            if answer.status != 503 {
                ensure!(answer.status == 422, "another amount was answered {}", answer.status);
                count(&self.tally.refused);
                return Ok(());
            }
        }
        Ok(())
    }
}
