//! The requests that run in this process, by key: a second one learns from the first, without the
//! database, that it is not alone.
//!
//! This is no lock and no cache. Other processes know nothing of it; the database stays the judge.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::{Arc, Mutex, PoisonError};

use domain::{Endpoint, IdempotencyKey, NewCharge, Outcome, StoredResponse, TenantId};
use tokio::sync::watch;

/// What makes two requests the same operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operation {
    pub tenant: TenantId,
    pub endpoint: Endpoint,
    pub key: IdempotencyKey,
}

#[derive(Clone, Default)]
pub struct InFlight {
    running: Arc<Mutex<HashMap<Operation, Running>>>,
}

#[derive(Clone)]
struct Running {
    charge: Arc<NewCharge>,
    end: watch::Receiver<Option<End>>,
}

/// How a running request ended.
#[derive(Debug, Clone)]
pub enum End {
    /// The key stands for this request's charge; its answer.
    Settled(StoredResponse),
    /// The request did not come to own the key, or failed: whoever waited has to try for itself.
    Open,
}

/// The place of a request among those with its key.
pub enum Entry {
    First(First),
    Second(Second),
}

impl InFlight {
    pub fn enter(&self, operation: &Operation, charge: &Arc<NewCharge>) -> Entry {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match running.entry(operation.clone()) {
            MapEntry::Occupied(occupied) => Entry::Second(Second(occupied.get().clone())),
            MapEntry::Vacant(vacant) => {
                let (end, receiver) = watch::channel(None);
                vacant.insert(Running { charge: Arc::clone(charge), end: receiver });
                Entry::First(First { in_flight: self.clone(), operation: operation.clone(), end })
            }
        }
    }

    /// Is a request with this key running, here?
    pub fn runs(&self, operation: &Operation) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).contains_key(operation)
    }
}

/// Held by the first request until its work has ended, also when its client has gone.
pub struct First {
    in_flight: InFlight,
    operation: Operation,
    end: watch::Sender<Option<End>>,
}

impl First {
    /// Ends the request: those that wait get its answer.
    pub fn settle(self, outcome: &Outcome) {
        let end = match outcome {
            Outcome::Created(response) | Outcome::Replayed(response) => {
                End::Settled(response.clone())
            }
            Outcome::PayloadConflict { .. } | Outcome::InFlight | Outcome::Expired { .. } => {
                End::Open
            }
        };
        self.end.send_replace(Some(end));
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let mut running = self.in_flight.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.operation);
        // Whoever waits sees the sender go, which counts as `Open`.
    }
}

/// A later request with the key of a running one.
pub struct Second(Running);

impl Second {
    /// The charge of the first request.
    pub fn first_charge(&self) -> &NewCharge {
        &self.0.charge
    }

    /// Waits for the end of the first request.
    pub async fn end(&mut self) -> End {
        match self.0.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(End::Open),
            Err(_sender_dropped) => End::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{AmountCents, Currency};

    use super::*;

    fn operation() -> Operation {
        Operation {
            tenant: TenantId::default_tenant(),
            endpoint: Endpoint::CreateCharge,
            key: IdempotencyKey::parse(b"8e03978e-40d5-43e8-bc93-6894a57f9324").expect("a key"),
        }
    }

    fn charge() -> Arc<NewCharge> {
        Arc::new(NewCharge {
            amount: AmountCents::new(4900).expect("an amount"),
            currency: Currency::parse("BRL").expect("a currency"),
            description: None,
        })
    }

    fn response() -> StoredResponse {
        StoredResponse {
            status: 201,
            content_type: "application/json".into(),
            location: None,
            body: b"{}".to_vec(),
        }
    }

    #[tokio::test]
    async fn the_second_gets_the_answer_of_the_first() {
        let in_flight = InFlight::default();
        let Entry::First(first) = in_flight.enter(&operation(), &charge()) else {
            panic!("nobody was there")
        };
        let Entry::Second(mut second) = in_flight.enter(&operation(), &charge()) else {
            panic!("the first is still there")
        };
        first.settle(&Outcome::Created(response()));
        assert!(matches!(second.end().await, End::Settled(answer) if answer == response()));
        assert!(matches!(in_flight.enter(&operation(), &charge()), Entry::First(_)));
    }

    #[tokio::test]
    async fn a_first_that_is_dropped_leaves_the_key_open() {
        let in_flight = InFlight::default();
        let Entry::First(first) = in_flight.enter(&operation(), &charge()) else {
            panic!("nobody was there")
        };
        let Entry::Second(mut second) = in_flight.enter(&operation(), &charge()) else {
            panic!("the first is still there")
        };
        drop(first);
        assert!(matches!(second.end().await, End::Open));
        assert!(matches!(in_flight.enter(&operation(), &charge()), Entry::First(_)));
    }
}
