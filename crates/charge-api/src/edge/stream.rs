//! A connection that yields one checked request at a time, and an end after the last.
//!
//! While a request is being answered nothing is read: a client that sends on is slowed down by its
//! own socket, and one that has gone is noticed when it is answered. Its charge is written anyway.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::web::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Refusal;
use super::body::Body;
use super::connection::Connection;
use super::head;
use crate::settings::HttpSettings;

/// Most that is read at once: several charges with their heads.
const READ: usize = 2048;

/// How long a client gets to take its last answer. Closed with bytes unread, a connection is reset,
/// and the answer may be lost on its way.
const LINGER: Duration = Duration::from_secs(1);

/// Stands for a request that was refused; the service finds the refusal beside it.
const REFUSED: &[u8] = b" / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

pub struct StrictStream {
    io: TcpStream,
    connection: Rc<Connection>,
    limits: Limits,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Read, and not yet handed on.
    bytes: BytesMut,
    /// How many of them are checked and may be handed on.
    checked: usize,
    phase: Phase,
    /// For the phase that needs one.
    timer: Pin<Box<Sleep>>,
    /// Runs while the client takes nothing of what is sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

struct Limits {
    head_max: usize,
    head_timeout: Duration,
    keep_alive: Duration,
    send_timeout: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// A head is awaited, of which `seen` bytes were looked at; `idle` while none has to be.
    Head {
        seen: usize,
        deadline: Instant,
        idle: bool,
    },
    Body(Body),
    /// The request is handed on whole and is being answered.
    Answer,
    /// Nothing is let through any more.
    End,
    /// All is sent; what the client still sends is thrown away.
    Linger,
}

impl StrictStream {
    pub fn new(io: TcpStream, settings: &HttpSettings, draining: CancellationToken) -> Self {
        // An answer is one write: to wait for more of it only delays it. A socket that refuses is
        // slower, no more.
        let _slower = io.set_nodelay(true);
        let limits = Limits {
            head_max: settings.head_max.as_usize(),
            head_timeout: settings.head_timeout,
            keep_alive: settings.keep_alive,
            send_timeout: settings.send_timeout,
        };
        let deadline = Instant::now() + limits.head_timeout;
        Self {
            io,
            connection: Rc::new(Connection::new(draining.clone())),
            limits,
            draining: Box::pin(draining.cancelled_owned()),
            bytes: BytesMut::new(),
            checked: 0,
            phase: Phase::Head { seen: 0, deadline, idle: false },
            timer: Box::pin(sleep_until(deadline)),
            stalled: None,
        }
    }

    pub fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Checks what was read; false when it needs more, or an answer.
    fn check(&mut self) -> Result<bool, Refusal> {
        match &mut self.phase {
            Phase::Head { seen, deadline, idle } => {
                // An empty line before a request is skipped (RFC 9112 §2.2).
                while self.bytes.starts_with(b"\r\n") {
                    self.bytes.advance(2);
                }
                if matches!(self.bytes[..], [] | [b'\r']) {
                    return Ok(false);
                }
                if std::mem::take(idle) {
                    *deadline = Instant::now() + self.limits.head_timeout;
                }
                let Some(head) = head::check(&mut self.bytes, *seen, self.limits.head_max)? else {
                    *seen = self.bytes.len();
                    return Ok(false);
                };
                self.connection.begin();
                self.checked = head.length;
                self.phase = Phase::Body(Body::new(head.framing));
                Ok(true)
            }
            Phase::Body(body) => {
                let taken = body.take(&self.bytes[self.checked..])?;
                self.checked += taken;
                if *body == Body::End {
                    self.connection.end();
                    self.phase = Phase::Answer;
                    return Ok(false);
                }
                Ok(taken > 0)
            }
            Phase::Answer | Phase::End | Phase::Linger => Ok(false),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if let Phase::Head { .. } = self.phase {
            self.connection.begin();
            self.connection.refuse(refusal);
            self.connection.end();
            // An answer to HEAD has no body, whatever it says.
            let method = if self.bytes.starts_with(b"HEAD ") { &b"HEAD"[..] } else { b"GET" };
            self.bytes.clear();
            self.bytes.extend_from_slice(method);
            self.bytes.extend_from_slice(REFUSED);
            self.checked = self.bytes.len();
            self.phase = Phase::Answer;
        } else {
            // Whoever reads the body learns that it did not arrive whole.
            self.phase = Phase::End;
        }
    }

    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes.reserve(READ);
        let read = poll_read_buf(Pin::new(&mut self.io), context, &mut self.bytes)?;
        match (read, self.phase) {
            (Poll::Ready(0), _) => self.phase = Phase::End,
            (Poll::Ready(_), _) => {}
            (Poll::Pending, Phase::Head { deadline, .. }) => {
                ready!(self.poll_patience(deadline, context));
            }
            (Poll::Pending, _) => {
                // An answer may come before the body's end.
                self.connection.wake_me(context);
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the wait for a head when there is no time left for it.
    fn poll_patience(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        let late = self.timer.as_mut().poll(context).is_ready();
        if self.bytes.is_empty() {
            if !late {
                ready!(self.draining.as_mut().poll(context));
            }
            self.phase = Phase::End;
        } else if late {
            self.refuse(Refusal::HeadTimeout);
        } else {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Waits until the request is answered, and its answer taken.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self.connection.answer() {
            Some(answered) if answered.closes => self.phase = Phase::End,
            Some(_) if self.stalled.is_none() => {
                let deadline = Instant::now() + self.limits.keep_alive;
                self.phase = Phase::Head { seen: 0, deadline, idle: true };
            }
            Some(_) | None => {
                self.connection.wake_me(context);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for StrictStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match this.phase {
                _ if this.checked > 0 => {
                    let part = this.checked.min(out.remaining());
                    out.put_slice(&this.bytes[..part]);
                    this.bytes.advance(part);
                    this.checked -= part;
                    return Poll::Ready(Ok(()));
                }
                Phase::Answer => ready!(this.poll_answer(context)),
                Phase::Body(_) if this.connection.answer().is_some() => this.phase = Phase::End,
                Phase::End | Phase::Linger => return Poll::Ready(Ok(())),
                Phase::Head { .. } | Phase::Body(_) => {
                    let checked = loop {
                        match this.check() {
                            Ok(true) => {}
                            Ok(false) => break this.checked > 0,
                            Err(refusal) => {
                                this.refuse(refusal);
                                break true;
                            }
                        }
                    };
                    if !checked {
                        ready!(this.poll_more(context))?;
                    }
                }
            }
        }
    }
}

impl AsyncWrite for StrictStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.io).poll_write(context, bytes) {
            Poll::Ready(written) => {
                if this.stalled.take().is_some() {
                    this.connection.wake();
                }
                Poll::Ready(written)
            }
            Poll::Pending => {
                let patience = this.limits.send_timeout;
                let timer = this.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.phase, Phase::Linger) {
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
            this.phase = Phase::Linger;
            this.timer.as_mut().reset(Instant::now() + LINGER);
        }
        // Asked first: a client that sends without a pause must not put it off.
        if this.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            this.bytes.clear();
            this.bytes.reserve(READ);
            match ready!(poll_read_buf(Pin::new(&mut this.io), context, &mut this.bytes)) {
                Ok(0) | Err(_) => return Poll::Ready(Ok(())),
                Ok(_) => {}
            }
        }
    }
}
