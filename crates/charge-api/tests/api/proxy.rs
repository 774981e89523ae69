//! A way to the database that a test can cut, or make dumb.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    url: String,
    dumb: Arc<AtomicBool>,
    cut: watch::Sender<u32>,
}

impl Proxy {
    /// In front of the server that this URL names.
    pub async fn to(url: &str) -> Self {
        let config: tokio_postgres::Config = url.parse().unwrap();
        let host = match &config.get_hosts()[0] {
            tokio_postgres::config::Host::Tcp(host) => host.clone(),
            tokio_postgres::config::Host::Unix(path) => panic!("no TCP: {}", path.display()),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let url = url.replace(&format!("{host}:{port}"), &own.to_string());
        assert!(url.contains(&own.to_string()), "the URL names host and port");
        let (dumb, cut) = (Arc::new(AtomicBool::new(false)), watch::channel(0).0);
        let (dumb_, cuts) = (Arc::clone(&dumb), cut.subscribe());
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect((host.as_str(), port)).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let never = Arc::new(AtomicBool::new(false));
                tokio::spawn(pass(from_client, to_server, never, cuts.clone()));
                tokio::spawn(pass(from_server, to_client, Arc::clone(&dumb_), cuts.clone()));
            }
        });
        Self { url, dumb, cut }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on the server hears everything and is never heard.
    pub fn swallow_answers(&self) {
        self.dumb.store(true, Ordering::SeqCst);
    }

    /// Ends all connections. New ones are passed on as they should be.
    pub fn cut(&self) {
        self.dumb.store(false, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    dumb: Arc<AtomicBool>,
    mut cut: watch::Receiver<u32>,
) {
    cut.mark_unchanged();
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = cut.changed() => 0,
        };
        let swallowed = dumb.load(Ordering::SeqCst);
        if read == 0 || (!swallowed && to.write_all(&bytes[..read]).await.is_err()) {
            return;
        }
    }
}
