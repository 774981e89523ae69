//! The admin port over real connections, in the kind of runtime that the services have.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{AdminSettings, Readiness, admin, registry};

/// Beyond any load of the machine that tests run on; only a test that fails waits this long.
const DEADLINE: Duration = Duration::from_secs(30);

struct Running {
    addr: SocketAddr,
    token: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

fn start(readiness: Readiness) -> Running {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let registry = registry("test", "0.0.0");
    let admin = admin::bind(&AdminSettings { listen }, registry, readiness).unwrap();
    let (addr, token) = (admin.addr(), CancellationToken::new());
    Running { addr, token: token.clone(), task: tokio::spawn(admin.run(token)) }
}

/// Status line, headers and body as they arrive.
async fn get(addr: SocketAddr, path: &str) -> String {
    ask(addr, "GET", path).await
}

async fn ask(addr: SocketAddr, method: &str, path: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let exchange = async {
        let mut connection = TcpStream::connect(addr).await?;
        connection.write_all(request.as_bytes()).await?;
        connection.read_to_string(&mut answer).await
    };
    tokio::time::timeout(DEADLINE, exchange).await.unwrap().unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_served_in_the_text_format() {
    let running = start(Readiness::new());

    let answer = get(running.addr, "/metrics").await;

    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4\r\n"), "{answer}");
    assert!(answer.contains("build_info{service=\"test\",version=\"0.0.0\"} 1\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_is_not_ready_is_alive() {
    let readiness = Readiness::new();
    let database = readiness.condition("database");
    let topic = readiness.condition("topic");
    let running = start(readiness);
    topic.set(true);
    database.set_false("pool: timed out");

    let alive = get(running.addr, "/livez").await;
    let unready = get(running.addr, "/readyz").await;
    database.set(true);
    let ready = get(running.addr, "/readyz").await;

    assert!(alive.starts_with("HTTP/1.1 200 OK\r\n") && alive.ends_with("\r\n\r\nok"), "{alive}");
    assert!(unready.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{unready}");
    assert!(unready.contains("content-type: application/json\r\n"), "{unready}");
    let body: serde_json::Value =
        serde_json::from_str(unready.rsplit("\r\n").next().unwrap()).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "ready": false,
            "failing": [{ "condition": "database", "reason": "pool: timed out" }]
        })
    );
    assert!(ready.starts_with("HTTP/1.1 200 OK\r\n") && ready.ends_with("\r\n\r\nok"), "{ready}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_that_sends_head_gets_the_status_without_a_body() {
    let running = start(Readiness::new());

    for path in ["/metrics", "/livez", "/readyz"] {
        let answer = ask(running.addr, "HEAD", path).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_paths_are_not_found() {
    let running = start(Readiness::new());

    for path in ["/", "/charges", "/metrics/"] {
        let answer = get(running.addr, path).await;
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_token_ends_the_server_and_frees_the_port() {
    let running = start(Readiness::new());
    get(running.addr, "/livez").await;

    running.token.cancel();
    tokio::time::timeout(DEADLINE, running.task).await.unwrap().unwrap().unwrap();

    assert!(TcpStream::connect(running.addr).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_cancelled_before_the_start_ends_it_too() {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let admin =
        admin::bind(&AdminSettings { listen }, registry("test", "0"), Readiness::new()).unwrap();
    let token = CancellationToken::new();
    token.cancel();

    tokio::time::timeout(DEADLINE, admin.run(token)).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_port_is_an_error_at_bind() {
    let running = start(Readiness::new());
    let settings = AdminSettings { listen: running.addr };

    let second = admin::bind(&settings, registry("test", "0"), Readiness::new());

    assert_eq!(second.err().map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
}
