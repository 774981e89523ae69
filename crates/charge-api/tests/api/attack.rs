//! Thousands of requests broken at random: none is a charge, none is a fault of ours, and the next
//! good one is served.

use crate::contracts;
use crate::request::{charge, charge_as, post};

const BODY: &str = r#"{"amountCents":4900,"currency":"BRL","description":"canary"}"#;

/// Enough to meet every branch of the readers many times.
const ROUNDS: u64 = 2000;

/// A sequence that looks random and is the same in every run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % sides
    }
}

/// Never a valid charge to begin with: a mutation must not be able to mend it.
fn seeds() -> Vec<Vec<u8>> {
    let key = uuid::Uuid::nil();
    vec![
        charge_as(key, BODY).bytes(),
        charge_as(key, BODY).chunked(11).bytes(),
        post(BODY).with("Expect", "100-continue").bytes(),
        charge_as(key, BODY).with("Upgrade", "websocket").with("Connection", "upgrade").bytes(),
        [post(BODY).bytes(), post(BODY).bytes()].concat(),
    ]
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    const PIECES: [&[u8]; 16] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"\xff",
        b":",
        b" ",
        b"\t",
        b"\r\n\r\n",
        b"0\r\n\r\n",
        b"%00",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"{",
        b"\"",
        b"99999999999999999999",
    ];
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len().max(1));
        match dice.roll(5) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => {
                let piece = PIECES[dice.roll(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => {
                let end = (at + dice.roll(40)).min(bytes.len());
                let copy = bytes[at.min(end)..end].to_vec();
                bytes.splice(at.min(end)..at.min(end), copy);
            }
        }
    }
}

contracts! {
    with &[("ONCEBOX_HTTP_HEAD_TIMEOUT", "1s"), ("ONCEBOX_HTTP_BODY_TIMEOUT", "1s"), ("ONCEBOX_HTTP_KEEP_ALIVE", "1s")];
    async fn no_broken_request_is_a_charge_or_a_fault(app: &TestApp) {
        let seeds = seeds();
        let mut dice = Dice(0x1234_5678_9abc_def1);
        for round in 0..ROUNDS {
            let mut bytes = seeds[dice.roll(seeds.len())].clone();
            mutate(&mut bytes, &mut dice);
            let mut connection = app.connect().await;
            connection.send(&bytes).await;
            connection.finish().await;
            let answers = connection.rest().await;
            let text = String::from_utf8_lossy(&answers);
            assert!(!text.contains("canary"), "{round}: {bytes:?}\n{text}");
            let versions = text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]);
            // The words of a problem name the version too.
            let is_status = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            for status in versions.filter(is_status) {
                assert!(matches!(status, "100") || status.starts_with('4'), "{round}: {text}");
            }
        }
        assert_eq!(app.rows().await, [0, 0, 0]);
        app.send(&charge(BODY)).await.assert_created();
    }
}
