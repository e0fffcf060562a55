//! Work that waits for its client's next request.
//!
//! A state is two random numbers, told once: whoever has not heard it cannot go on, and it goes
//! with its use. The table belongs to one session, so another client's state is unknown here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::InputResponses;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::suspendable_request::{RequestTarget, SuspendableRequest};

/// Work that waits, by its state.
#[derive(Default)]
pub(super) struct SuspendedWork {
    requests: Mutex<RequestsByState>,
}

/// Each with what ends it when its time is up.
type RequestsByState = HashMap<String, (SuspendableRequest, AbortOnDropHandle<()>)>;

/// Reasons why a request cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResumeError {
    #[error(
        "the `requestState` is none of this session's, was used already, or has expired; make the \
         request anew without it"
    )]
    Unknown,
    #[error("the `requestState` belongs to another request")]
    Another,
    #[error("{0}")]
    Answer(String),
}

impl SuspendedWork {
    /// Keeps work until its state is used, for `limit` at the most. The state.
    pub(super) fn insert(self: &Arc<Self>, request: SuspendableRequest, limit: Duration) -> String {
        let state = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let (kept, expiring) = (Arc::downgrade(self), state.clone());
        let expiry = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            let expired = kept
                .upgrade()
                .and_then(|kept| kept.lock().remove(&expiring));
            if expired.is_some() {
                tracing::info!("a call ended: its client gave no answer within {limit:?}");
            }
        });
        let expiry = AbortOnDropHandle::new(expiry);
        self.lock().insert(state.clone(), (request, expiry));
        state
    }

    /// Takes work up again, with the client's answers. A request that is refused leaves it as it
    /// was.
    pub(super) fn resume(
        &self,
        state: &str,
        what: &RequestTarget,
        responses: &InputResponses,
    ) -> Result<SuspendableRequest, ResumeError> {
        let mut requests = self.lock();
        let (request, _) = requests.get_mut(state).ok_or(ResumeError::Unknown)?;
        if !request.is_for(what) {
            return Err(ResumeError::Another);
        }
        request.answer(responses).map_err(ResumeError::Answer)?;
        let (request, _) = requests.remove(state).ok_or(ResumeError::Unknown)?;
        Ok(request)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RequestsByState> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
