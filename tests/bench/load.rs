//! A closed loop of HTTP/1.1 clients: each connection sends its next request when it has the answer
//! to the last. Written for little processor time, since it shares the machine with what it measures.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// What came back.
pub struct Outcome {
    pub per_second: f64,
    pub statuses: BTreeMap<u16, u64>,
    latency: Histogram<u64>,
}

impl Outcome {
    pub fn p50_ms(&self) -> f64 {
        self.quantile_ms(0.50)
    }

    pub fn p99_ms(&self) -> f64 {
        self.quantile_ms(0.99)
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^52 µs")]
        let micros = self.latency.value_at_quantile(quantile) as f64;
        micros / 1000.0
    }

    /// # Errors
    /// When there was another answer than these.
    pub fn only(&self, statuses: &[u16]) -> Result<()> {
        ensure!(
            self.statuses.keys().all(|status| statuses.contains(status)),
            "only {statuses:?} was expected: {:?}",
            self.statuses
        );
        Ok(())
    }
}

/// Posts charges over `connections` for `duration`, each under the key that `key` gives.
pub async fn charges(
    to: SocketAddr,
    connections: usize,
    duration: Duration,
    key: impl Fn() -> Uuid + Clone + Send + 'static,
) -> Result<Outcome> {
    let start = Instant::now();
    let clients: Vec<_> =
        (0..connections).map(|_| tokio::spawn(client(to, start + duration, key.clone()))).collect();
    gather(clients, start).await
}

/// Posts charges at a steady rate, whatever the answers do: each latency is counted from when the
/// charge was due, so that a slow answer is not paid for by the charges behind it alone.
pub async fn paced(to: SocketAddr, per_second: u32, duration: Duration) -> Result<Outcome> {
    let start = Instant::now();
    let pause = Duration::from_secs(u64::from(PACED_CONNECTIONS)) / per_second;
    let clients: Vec<_> = (0..PACED_CONNECTIONS)
        .map(|number| {
            let first = start + pause * number / PACED_CONNECTIONS;
            tokio::spawn(paced_client(to, first, pause, start + duration))
        })
        .collect();
    gather(clients, start).await
}

/// Enough that one slow answer holds up few.
const PACED_CONNECTIONS: u32 = 64;

async fn paced_client(
    to: SocketAddr,
    first: Instant,
    pause: Duration,
    until: Instant,
) -> Result<Client> {
    let mut connection = Connection::open(to).await?;
    let mut seen = Client { statuses: BTreeMap::new(), latency: histogram() };
    let mut due = first;
    while due < until {
        tokio::time::sleep_until(due.into()).await;
        let status = connection.charge(Uuid::new_v4()).await?;
        seen.latency.record(u64::try_from(due.elapsed().as_micros())?.max(1))?;
        *seen.statuses.entry(status).or_default() += 1;
        due += pause;
    }
    Ok(seen)
}

async fn gather(clients: Vec<JoinHandle<Result<Client>>>, start: Instant) -> Result<Outcome> {
    let mut statuses = BTreeMap::new();
    let mut latency = histogram();
    for client in clients {
        let one = client.await??;
        latency.add(&one.latency)?;
        for (status, count) in one.statuses {
            *statuses.entry(status).or_default() += count;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let per_second = latency.len() as f64 / start.elapsed().as_secs_f64();
    Ok(Outcome { per_second, statuses, latency })
}

struct Client {
    statuses: BTreeMap<u16, u64>,
    latency: Histogram<u64>,
}

async fn client(to: SocketAddr, until: Instant, key: impl Fn() -> Uuid) -> Result<Client> {
    let mut connection = Connection::open(to).await?;
    let mut seen = Client { statuses: BTreeMap::new(), latency: histogram() };
    while Instant::now() < until {
        let sent = Instant::now();
        let status = connection.charge(key()).await?;
        seen.latency.record(u64::try_from(sent.elapsed().as_micros())?.max(1))?;
        *seen.statuses.entry(status).or_default() += 1;
    }
    Ok(seen)
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("invariant: three significant digits are allowed")
}

/// A kept-alive connection.
pub struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

const BODY: &str = r#"{"amountCents":4900}"#;

impl Connection {
    pub async fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::with_capacity(256), answer: vec![0; 4096] })
    }

    /// Posts a charge under this key; the status of the answer.
    pub async fn charge(&mut self, key: Uuid) -> Result<u16> {
        self.request.clear();
        write!(
            self.request,
            "POST /charges HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{BODY}",
            BODY.len()
        )?;
        self.stream.write_all(&self.request).await?;
        let mut filled = 0;
        loop {
            let read = self.stream.read(&mut self.answer[filled..]).await?;
            if read == 0 {
                bail!("the server closed the connection");
            }
            filled += read;
            if let Some(status) = whole_answer(&self.answer[..filled])? {
                return Ok(status);
            }
        }
    }
}

/// The status once the answer is there to its last byte.
fn whole_answer(bytes: &[u8]) -> Result<Option<u16>> {
    let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head])?;
    let length = text
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
        })
        .context("an answer without Content-Length")??;
    let status = text.get(9..12).context("no status line")?.parse()?;
    Ok((bytes.len() >= head + 4 + length).then_some(status))
}
