//! What a user of the inbox writes: the effect of events, inside the transaction that records them.

use std::error::Error;
use std::future::Future;

use store::Transaction;

use crate::event::Event;

type Cause = Box<dyn Error + Send + Sync>;

/// The effect of events. It is called again after a failure, so it must do nothing that a rollback
/// does not undo.
pub trait Handler: Send + Sync + 'static {
    /// Applies `events`, all of which are new, in the order they have in their partition. Several
    /// come in one call so that their effect can be one statement. If the call fails, nothing of it
    /// remains, and each of the events comes again in a call of its own.
    fn handle(
        &self,
        tx: &Transaction<'_>,
        events: &[&Event],
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// What the failure of a handler says about the event.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// Nothing: something that the handler needs is away. The partition waits, however long.
    #[error("something that the event needs is away")]
    Transient(#[source] Cause),
    /// The event can never be applied as it is. It becomes a dead letter at once.
    #[error("the event cannot be applied")]
    Permanent(#[source] Cause),
    /// A statement failed. Its SQLSTATE tells whether the event can have caused it; if so, it is
    /// tried a few times before it becomes a dead letter.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl HandlerError {
    pub fn transient(cause: impl Into<Cause>) -> Self {
        Self::Transient(cause.into())
    }

    pub fn permanent(cause: impl Into<Cause>) -> Self {
        Self::Permanent(cause.into())
    }
}
