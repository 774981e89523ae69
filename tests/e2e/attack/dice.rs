//! Requests at random, from a seed: the same seed makes the same requests.

use uuid::Uuid;

/// What no answer and no log may hold.
pub const CANARY: &str = "canary";

/// Spellings of a value that a reader may trip over; `{}` is a key of the request's own.
const KEYS: [&str; 20] = [
    "{}",
    "{}",
    "\"{}\"",
    "",
    " ",
    "canary",
    "1-1-1-1-1",
    "{}, {}",
    "\"{}\";a=1",
    "{{}}",
    "'{}'",
    "urn:uuid:{}",
    "{}\t",
    "\"{}",
    "\t{}",
    "\"\\{}\"",
    "\u{a0}{}",
    "{}\u{e9}",
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
];
const AMOUNTS: [&str; 20] = [
    "1",
    "4900",
    "999999999999",
    "1000000000000",
    "0",
    "-0",
    "-1",
    "1e3",
    "49.99",
    "\"4900\"",
    "9007199254740993",
    "18446744073709551616",
    "1e400",
    "04900",
    "+1",
    "NaN",
    "null",
    "[[[[]]]]",
    "true",
    "\"canary\"",
];
const CURRENCIES: [&str; 8] =
    ["\"BRL\"", "\"USD\"", "null", "\"brl\"", "\"ZZZ\"", "\"ВRL\"", "986", "\"canary\""];
const TEXTS: [&str; 14] = [
    "\"\"",
    "\"coffee\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\udbff\\udfff\"",
    "\"\u{202e}\u{ffff}\"",
    "\"'; DROP TABLE charges; --\"",
    "\"4111 1111 1111 1111\"",
    "\"\\n\\u001b[31m\"",
    "\"a\nb\"",
    "7",
    "[]",
    "\"\\x\"",
    "\"canary",
];
const HEADERS: [&str; 24] = [
    "Prefer: wait=0",
    "Prefer: wait=-1",
    "Prefer: wait=1",
    "Prefer: wait=99999999999999999999",
    "Prefer: \"wait=1\",,;",
    "Authorization: Bearer canary",
    "Authorization:",
    "Expect: 100-continue",
    "Expect: canary",
    "Upgrade: h2c",
    "Connection: Upgrade, HTTP2-Settings",
    "Connection: close",
    "Connection: keep-alive",
    "Content-Encoding: gzip",
    "Content-Type: text/plain",
    "Host: other",
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "traceparent: canary",
    "tracestate: a=1,,=;canary",
    "Transfer-Encoding: chunked",
    "Content-Length: 5",
    "Idempotency_Key: canary",
    "Idempotency-Key: canary",
    "X-Forwarded-For: canary, \u{7f}\u{0}",
];
const METHODS: [&str; 12] = [
    "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", "CANARY",
    "P'ST", "PRI",
];
const TARGETS: [&str; 16] = [
    "/charges",
    "/charges/",
    "//charges",
    "/charges/canary",
    "/charges?a=%00",
    "/problems/internal",
    "/problems/%2e%2e",
    "/%",
    "/%ff",
    "*",
    "canary",
    "http://host/charges",
    "ftp://host/charges",
    "http://a:b@host/charges",
    "/charges#canary",
    "/charges/00000000-0000-0000-0000-000000000000",
];
const VERSIONS: [&str; 6] =
    ["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1"];
const PIECES: [&[u8]; 18] = [
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
    b"\\u0061",
    b"\xed\xa0\x80",
    b"99999999999999999999",
];

/// A sequence that looks random (xorshift64*).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed | 1)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("invariant: 31 bits") % sides
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.roll(256)).expect("invariant: below 256")
    }

    pub fn key(&mut self) -> Uuid {
        let bytes: Vec<u8> = (0..16).map(|_| self.byte()).collect();
        Uuid::from_slice(&bytes).expect("invariant: 16 bytes")
    }

    /// The bytes of one connection.
    pub fn connection(&mut self) -> Vec<u8> {
        match self.roll(10) {
            0 => (0..self.roll(2000)).map(|_| self.byte()).collect(),
            1..=4 => {
                let mut bytes = self.request("{\"amountCents\":4900,\"description\":\"canary\"}");
                self.mutate(&mut bytes);
                bytes
            }
            5..=7 => {
                let body = self.body();
                self.request(&body)
            }
            8 => self.anywhere(),
            _ => (0..=self.roll(5)).flat_map(|_| self.anywhere()).collect(),
        }
    }

    /// A charge that is well-formed but for what a client can choose.
    fn request(&mut self, body: &str) -> Vec<u8> {
        let key = self.key().to_string();
        let key = self.one_of(&KEYS).replacen("{}", &key, 2);
        let mut head = format!(
            "POST /charges HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\n"
        );
        if self.roll(4) == 0 {
            head += self.one_of(&HEADERS);
            head += "\r\n";
        }
        if self.roll(200) == 0 {
            head += &"X: 1\r\n".repeat(self.roll(200));
        }
        if self.roll(3) > 0 {
            return format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
        }
        let mut bytes = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for chunk in body.as_bytes().chunks(1 + self.roll(20)) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    }

    /// JSON, more often than not.
    fn body(&mut self) -> String {
        let mut members = vec![format!("\"amountCents\":{}", self.one_of(&AMOUNTS))];
        for _ in 0..self.roll(3) {
            members.push(match self.roll(6) {
                0 => format!("\"currency\":{}", self.one_of(&CURRENCIES)),
                1 | 2 => format!("\"description\":{}", self.one_of(&TEXTS)),
                3 => format!("\"\\u0061mountCents\":{}", self.one_of(&AMOUNTS)),
                4 => format!("\"canary\":{}", "[".repeat(self.roll(9000))),
                _ => format!("\"description\":\"{}\"", "é".repeat(self.roll(600))),
            });
        }
        let padding = " ".repeat(if self.roll(20) == 0 { self.roll(20_000) } else { 0 });
        format!("{{{}}}{padding}", members.join(","))
    }

    /// Any method at any target.
    fn anywhere(&mut self) -> Vec<u8> {
        let (method, target) = (self.one_of(&METHODS), self.one_of(&TARGETS));
        let (version, header) = (self.one_of(&VERSIONS), self.one_of(&HEADERS));
        format!("{method} {target} {version}\r\nHost: test\r\n{header}\r\n\r\n").into_bytes()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.roll(4) {
            let at = self.roll(bytes.len().max(1));
            match self.roll(5) {
                0 => bytes.truncate(at),
                1 if !bytes.is_empty() => bytes[at] = self.byte(),
                2 if !bytes.is_empty() => drop(bytes.remove(at)),
                3 => {
                    let piece = PIECES[self.roll(PIECES.len())];
                    bytes.splice(at..at, piece.iter().copied());
                }
                _ => {
                    let end = (at + self.roll(40)).min(bytes.len());
                    let copy = bytes[at.min(end)..end].to_vec();
                    bytes.splice(at.min(end)..at.min(end), copy);
                }
            }
        }
    }
}
