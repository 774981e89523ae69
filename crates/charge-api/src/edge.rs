//! The edge: what stands between the sockets and actix-web, and lets one well-formed request
//! through at a time.
//!
//! actix-web's parser is lenient where a strict reader and a lenient one in a chain see two
//! different requests (bare LF, chunk extensions); its own refusals have no body; it times only the
//! first head of a connection; and it runs what was pipelined behind a request whose answer closes
//! the connection. So the bytes are checked before it sees them, and the next request is held back
//! until this one is answered. A refusal takes the place of the request in the stream, so that it
//! is answered like any other: in order, as a problem, counted.
//!
//! What a request means is not looked at here.

mod body;
mod connection;
mod head;
mod stream;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use actix_http::{HttpService, KeepAlive, Request};
use actix_server::Server;
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt as _, fn_service, map_config,
};
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{AppConfig, Response, ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::middleware::Next;
use futures_util::FutureExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::api_error::ApiError;
use crate::settings::HttpSettings;
use connection::Connection;
use stream::StrictStream;

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not HTTP/1.1, or not in one way only.
    Malformed(&'static str),
    TargetTooLong,
    HeadTooLarge,
    HeadTimeout,
}

/// Serves `app` on the listener. `draining` is cancelled when the server is about to be stopped:
/// connections then close between two requests.
pub fn serve<F, I, S, B>(
    listener: TcpListener,
    settings: &HttpSettings,
    grace: Duration,
    draining: &CancellationToken,
    app: F,
) -> io::Result<Server>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    S::Service: 'static,
    <S::Service as Service<Request>>::Future: 'static,
    B: MessageBody + 'static,
{
    let workers = usize::from(settings.workers);
    let connections = usize::try_from(settings.connections_max).unwrap_or(usize::MAX);
    let (settings, draining) = (settings.clone(), draining.clone());
    let service = move || {
        let (settings, draining) = (settings.clone(), draining.clone());
        let app = app().into_factory().map_err(|error: S::Error| error.into().error_response());
        fn_service(move |io: TcpStream| {
            let peer = io.peer_addr().ok();
            let stream = StrictStream::new(io, &settings, draining.clone());
            std::future::ready(Ok((stream, peer)))
        })
        .and_then(
            // The stream keeps the time and the keep-alive; nothing here does it a second time.
            HttpService::build()
                .keep_alive(KeepAlive::Os)
                .client_request_timeout(Duration::ZERO)
                .client_disconnect_timeout(Duration::ZERO)
                .on_connect_ext(|stream: &StrictStream, data| {
                    data.insert(Rc::clone(stream.connection()));
                })
                .h1(map_config(app, |()| AppConfig::default())),
        )
    };
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections(connections.div_ceil(workers))
        .shutdown_timeout(grace.as_secs())
        .disable_signals()
        .listen("charge-api", listener, service)?
        .run();
    Ok(server)
}

/// Answers a refused request, and tells the stream when a request is answered. The outermost
/// middleware but for the one that measures. A handler that panics is answered too.
pub async fn guard<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    let Some(connection) = request.conn_data::<Rc<Connection>>().cloned() else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    let last = request.head().connection_type() == ConnectionType::Close;
    let mut response = match connection.take_refusal() {
        Some(refusal) => request.error_response(ApiError::from(refusal)).map_into_right_body(),
        None => match AssertUnwindSafe(next.call(request)).catch_unwind().await {
            Ok(Ok(response)) => response.map_into_left_body(),
            Ok(Err(error)) => {
                connection.answered(true);
                return Err(error);
            }
            // The hook has logged it. What the handler held is dropped: a transaction rolls back.
            Err(_panic) => {
                connection.answered(true);
                return Err(ApiError::Internal.into());
            }
        },
    };
    let head = response.response_mut().head_mut();
    // An answer before the end of the body: what is left of it must not be read as a request.
    let closes = last
        || head.connection_type() == ConnectionType::Close
        || !connection.is_whole()
        || connection.is_draining();
    if closes {
        head.set_connection_type(ConnectionType::Close);
    }
    connection.answered(closes);
    Ok(response)
}

#[cfg(test)]
mod tests;
