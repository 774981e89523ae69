use actix_web::middleware::from_fn;
use actix_web::{App, HttpResponse, web};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

async fn broken() -> HttpResponse {
    panic!("a handler that is broken on purpose")
}

#[tokio::test]
async fn a_handler_that_panics_is_500_and_the_next_request_is_served() {
    let settings = settings::load::<HttpSettings>(None, &[("ONCEBOX_AUTH", "disabled")]);
    let settings = settings.unwrap_or_else(|problems| panic!("{problems}"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("a bound port");
    let draining = CancellationToken::new();
    let server = serve(listener, &settings, Duration::from_secs(1), &draining, || {
        App::new()
            .wrap(from_fn(guard))
            .route("/broken", web::get().to(broken))
            .route("/whole", web::get().to(HttpResponse::NoContent))
    });
    let server = server.expect("a server");
    let handle = server.handle();
    let running = tokio::spawn(server);

    let ask = async |path: &str| {
        let mut stream = TcpStream::connect(addr).await.expect("a connection");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer and the end");
        answer
    };
    // More often than there are workers: none of them is lost by it.
    for _ in 0..2 * settings.workers {
        let answer = ask("/broken").await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(
            answer.contains("/problems/internal") && !answer.contains("on purpose"),
            "{answer}"
        );
        assert!(ask("/whole").await.starts_with("HTTP/1.1 204 "));
    }
    handle.stop(true).await;
    running.await.expect("it ends").expect("it ends well");
}
