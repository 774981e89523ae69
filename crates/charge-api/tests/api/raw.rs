//! A socket and what comes back over it, byte by byte: no HTTP library that would mend what a test
//! breaks.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::app::within;
use crate::request::CANARY;

pub struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Raw {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(addr)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: vec![] }
    }

    /// The server may have closed by now, and then its answer tells.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _answered = within("bytes are sent", self.stream.write_all(bytes)).await;
    }

    pub async fn response(&mut self) -> Response {
        self.read_response(true).await.expect("an answer before the end of the connection")
    }

    /// The answer to a HEAD request, whose Content-Length is that of the answer to GET.
    pub async fn response_to_head(&mut self) -> Response {
        self.read_response(false).await.expect("an answer before the end of the connection")
    }

    /// The connection ends without another byte.
    pub async fn closed(&mut self) {
        assert_eq!(self.rest().await, b"");
    }

    /// The other side has gone, as far as can be told without waiting.
    pub async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let peek =
            tokio::time::timeout(std::time::Duration::ZERO, self.stream.peek(&mut byte)).await;
        matches!(peek, Ok(Ok(0) | Err(_)))
    }

    /// All that comes until the connection ends.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.receive().await {}
        std::mem::take(&mut self.received)
    }

    /// Sends FIN: nothing more will come, but an answer is awaited.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Sends RST.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    async fn read_response(&mut self, with_body: bool) -> Option<Response> {
        let head_end = loop {
            if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.receive().await {
                assert_eq!(self.received, b"", "an answer cut off");
                return None;
            }
        };
        let head: Vec<u8> = self.received.drain(..head_end).collect();
        let head = String::from_utf8(head).expect("a head in ASCII");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap();
        let status = status.split(' ').nth(1).expect("a status line").parse().unwrap();
        let headers: Vec<_> = lines
            .map(|line| line.split_once(": ").expect("a header"))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut response = Response { status, headers, body: vec![] };
        assert_eq!(response.header("transfer-encoding"), None);
        if with_body && status >= 200 {
            let length = response.header("content-length").expect("a length");
            let length: usize = length.parse().unwrap();
            while self.received.len() < length {
                assert!(self.receive().await, "a body cut off");
            }
            response.body = self.received.drain(..length).collect();
        }
        Some(response)
    }

    async fn receive(&mut self) -> bool {
        // A reset is an end too: it follows when the server gave up on bytes that were still sent.
        let read = within("an answer, or the end", self.stream.read_buf(&mut self.received)).await;
        read.is_ok_and(|count| count > 0)
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(header, _)| header == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice");
        value
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The names of all headers, sorted.
    pub fn header_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// A problem of this kind, complete, and without anything that the client sent.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, kind: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["retryable"].is_boolean(), "{problem}");
        assert!(!format!("{self:?}{problem}").contains(CANARY), "{problem}");
        problem
    }

    #[track_caller]
    pub fn assert_created(&self) -> &Self {
        assert_eq!(self.status, 201, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("idempotent-replayed"), Some("false"));
        self
    }

    /// The same answer as the first, marked as a replay.
    #[track_caller]
    pub fn assert_replay_of(&self, first: &Self) {
        assert_eq!(self.status, first.status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.body, first.body);
        assert_eq!(self.header("idempotent-replayed"), Some("true"));
        for name in ["content-type", "location", "idempotency-key"] {
            assert_eq!(self.header(name), first.header(name), "{name}");
        }
    }
}
