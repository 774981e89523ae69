//! Clients of the charge API: a polite one, and raw bytes on a socket for the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

/// Longer than any deadline of the API: what is not answered by then never is.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// A server that was killed is back long before.
const INSIST_LIMIT: Duration = Duration::from_secs(120);
/// Between two tries of the same charge.
const INSIST_PAUSE: Duration = Duration::from_millis(100);

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Result<Value> {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).with_context(|| format!("status {}: {text}", self.status))
    }

    /// One header, empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The last part of a problem's `type`, empty when it is none.
    pub fn problem(&self) -> String {
        let value = self.json().unwrap_or_default();
        let name = value["type"].as_str().and_then(|text| text.rsplit('/').next());
        name.unwrap_or_default().to_owned()
    }

    /// The id of the charge it tells of.
    pub fn charge_id(&self) -> Result<Uuid> {
        let value = self.json()?;
        Ok(value["id"].as_str().with_context(|| format!("no id in {value}"))?.parse()?)
    }
}

/// Keeps its connections, like a service that charges.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
}

impl Default for Client {
    fn default() -> Self {
        let http = reqwest::Client::builder().timeout(ANSWER_LIMIT).no_proxy().build();
        Self { http: http.expect("invariant: nothing in this configuration can fail") }
    }
}

impl Client {
    /// `POST /charges` of an amount, in the default currency.
    pub async fn charge(&self, base: &str, key: Uuid, amount_cents: i64) -> Result<Answer> {
        let body = format!(r#"{{"amountCents":{amount_cents}}}"#);
        self.post(base, &key.to_string(), &body).await
    }

    /// `POST /charges` with a body of one's own.
    pub async fn post(&self, base: &str, key: &str, body: &str) -> Result<Answer> {
        let request = self.http.post(format!("{base}/charges"));
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", key).body(body.to_owned());
        answer(request.send().await?).await
    }

    /// Asks the APIs in turn, beginning with one of them, until the charge is acknowledged. `heard`
    /// gets every answer on the way: an error is one that never came.
    ///
    /// # Errors
    /// An answer that asking again cannot change, or no acknowledgement within [`INSIST_LIMIT`].
    pub async fn insist(
        &self,
        bases: &[String],
        first: usize,
        (key, amount_cents): (Uuid, i64),
        mut heard: impl FnMut(&Result<Answer>),
    ) -> Result<Answer> {
        let deadline = Instant::now() + INSIST_LIMIT;
        for turn in first.. {
            let answer = self.charge(&bases[turn % bases.len()], key, amount_cents).await;
            heard(&answer);
            match answer {
                Ok(answer) if answer.status == 201 => return Ok(answer),
                // 409: another one is at it. 503: nothing is stored. An error: nobody knows.
                Ok(Answer { status: 409 | 503, .. }) | Err(_) => {}
                Ok(Answer { status, .. }) => bail!("key {key} was answered {status}"),
            }
            ensure!(Instant::now() < deadline, "key {key}: no 201 within {INSIST_LIMIT:?}");
            tokio::time::sleep(INSIST_PAUSE).await;
        }
        unreachable!("the loop ends by its deadline")
    }

    pub async fn get(&self, base: &str, path: &str) -> Result<Answer> {
        answer(self.http.get(format!("{base}{path}")).send().await?).await
    }
}

async fn answer(response: reqwest::Response) -> Result<Answer> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Answer { status, headers, body: response.bytes().await?.to_vec() })
}

/// How a client goes away without having read its answer.
#[derive(Clone, Copy, Debug)]
pub enum Parting {
    /// FIN: it says that it will send no more.
    Close,
    /// RST: as when its process dies or its network breaks.
    Reset,
}

/// The bytes of a whole `POST /charges`.
pub fn charge_request(key: Uuid, amount_cents: i64) -> Vec<u8> {
    let body = format!(r#"{{"amountCents":{amount_cents}}}"#);
    let length = body.len();
    format!(
        "POST /charges HTTP/1.1\r\nhost: oncebox\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Sends a whole request and leaves without reading a byte of the answer.
pub async fn send_and_leave(to: SocketAddr, request: &[u8], parting: Parting) -> Result<()> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(request).await?;
    leave(stream, parting).await
}

/// Ends a connection on which a request is in progress.
pub async fn leave(mut stream: TcpStream, parting: Parting) -> Result<()> {
    match parting {
        Parting::Close => stream.shutdown().await?,
        Parting::Reset => stream.set_zero_linger()?,
    }
    Ok(())
}

/// Sends bytes, whatever they are, and returns all that comes back until the server closes.
pub async fn send_raw(to: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    tokio::time::timeout(ANSWER_LIMIT, stream.read_to_end(&mut answer)).await??;
    Ok(answer)
}
