//! What clients were told, key by key, to be held against what is in the database.

use std::collections::HashMap;
use std::sync::Mutex;

use uuid::Uuid;

use crate::client::Answer;

/// Filled by any number of clients at once.
#[derive(Default)]
pub struct Answers {
    by_key: Mutex<HashMap<Uuid, KeyAnswers>>,
}

/// All that was heard about one key.
#[derive(Clone, Debug)]
pub struct KeyAnswers {
    pub amount_cents: i64,
    /// The bytes of the first 201.
    pub body: Vec<u8>,
    /// How many 201s there were.
    pub count: u64,
    /// How many of them said that they were replays.
    pub replays: u64,
    /// A later one that was not the same, byte for byte.
    pub differing: Option<Vec<u8>>,
}

impl Answers {
    /// Notes a 201; other answers acknowledge nothing.
    pub fn note(&self, key: Uuid, amount_cents: i64, answer: &Answer) {
        if answer.status != 201 {
            return;
        }
        let mut by_key = self.by_key.lock().expect("invariant: nothing panics under this lock");
        let known = by_key.entry(key).or_insert_with(|| KeyAnswers {
            amount_cents,
            body: answer.body.clone(),
            count: 0,
            replays: 0,
            differing: None,
        });
        known.count += 1;
        known.replays += u64::from(answer.header("idempotent-replayed") == "true");
        if known.body != answer.body {
            known.differing = Some(answer.body.clone());
        }
    }

    /// How many keys have been acknowledged.
    pub fn keys(&self) -> usize {
        self.by_key.lock().expect("invariant: nothing panics under this lock").len()
    }

    pub fn all(&self) -> HashMap<Uuid, KeyAnswers> {
        self.by_key.lock().expect("invariant: nothing panics under this lock").clone()
    }
}
