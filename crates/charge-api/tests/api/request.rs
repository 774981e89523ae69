//! A request in the making: well-formed until a test says otherwise.

use uuid::Uuid;

/// What no answer may hold: tests put it wherever a client can put something.
pub const CANARY: &str = "canary";

#[derive(Clone)]
pub struct Request {
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// A charge under a new key.
pub fn charge(body: &str) -> Request {
    charge_as(Uuid::new_v4(), body)
}

pub fn charge_as(key: Uuid, body: &str) -> Request {
    post(body).with("Idempotency-Key", &key.to_string())
}

/// A charge without a key.
pub fn post(body: impl AsRef<[u8]>) -> Request {
    let mut request = Request::new("POST", "/charges");
    request.body = body.as_ref().to_vec();
    let length = request.body.len().to_string();
    request.with("Content-Type", "application/json").with("Content-Length", &length)
}

pub fn get(target: &str) -> Request {
    Request::new("GET", target)
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        let line = format!("{method} {target} HTTP/1.1");
        Self { line, headers: vec![], body: vec![] }.with("Host", "test")
    }

    pub fn with(self, name: &str, value: &str) -> Self {
        self.with_bytes(name, value.as_bytes())
    }

    pub fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.headers.push((name.to_owned(), value.to_vec()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
        self
    }

    /// The same request to somewhere else, or by another method.
    pub fn line(mut self, line: &str) -> Self {
        self.line = line.to_owned();
        self
    }

    /// In chunks of one size, instead of with a length.
    pub fn chunked(self, size: usize) -> Self {
        let mut request = self.without("Content-Length").with("Transfer-Encoding", "chunked");
        let mut body = Vec::new();
        for chunk in request.body.chunks(size) {
            body.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            body.extend(chunk);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n\r\n");
        request.body = body;
        request
    }

    /// The body as it is sent, whatever the headers say.
    pub fn raw_body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    pub fn head(&self) -> Vec<u8> {
        let mut bytes = format!("{}\r\n", self.line).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend(format!("{name}: ").into_bytes());
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"\r\n");
        bytes
    }

    pub fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }
}
