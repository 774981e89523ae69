//! What the stream of a connection and the service behind it tell each other. Both run in one task.

use std::cell::Cell;
use std::task::{Context, Waker};

use tokio_util::sync::CancellationToken;

use super::Refusal;

pub struct Connection {
    draining: CancellationToken,
    /// The request that was handed on has come to its end.
    whole: Cell<bool>,
    answered: Cell<Option<Answered>>,
    /// Stands for the request that was handed on last.
    refusal: Cell<Option<Refusal>>,
    waker: Cell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// No request is let through after this answer.
    pub closes: bool,
}

impl Connection {
    pub fn new(draining: CancellationToken) -> Self {
        Self {
            draining,
            whole: Cell::new(false),
            answered: Cell::new(None),
            refusal: Cell::new(None),
            waker: Cell::new(None),
        }
    }

    /// The service has an answer. It is on its way before the stream is asked to read again.
    pub fn answered(&self, closes: bool) {
        self.answered.set(Some(Answered { closes }));
        self.wake();
    }

    pub fn is_whole(&self) -> bool {
        self.whole.get()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    pub fn take_refusal(&self) -> Option<Refusal> {
        self.refusal.take()
    }

    pub(super) fn begin(&self) {
        self.whole.set(false);
        self.answered.set(None);
    }

    pub(super) fn end(&self) {
        self.whole.set(true);
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refusal.set(Some(refusal));
    }

    pub(super) fn answer(&self) -> Option<Answered> {
        self.answered.get()
    }

    pub(super) fn wake_me(&self, context: &Context<'_>) {
        self.waker.set(Some(context.waker().clone()));
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
