//! Sessions whose turn another process runs: what is asked of them goes there through the store,
//! and is done there.
//!
//! What a person says or fills in at a form goes this way too. The store deletes a request's words as
//! soon as they are taken, so that a form is in it for moments only.

use std::time::Duration;

use conjure_core::chat::Message;
use conjure_core::turn::{ApprovalDecision, EffectiveFrom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::approvals::DecisionScope;
use super::requests::{CancelRequest, TurnOrigin};
use super::runs::NewTurn;
use super::terms::TurnTerms;
use super::view::SessionPatch;
use super::{Manager, ManagerError, QuestionReply};
use conjure_store::{Owner, ProcessRequest, RequestReply, StoreError, ThreadId};

/// A request to another process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum RemoteRequest {
    Say(RemoteTurn),
    /// Like `Say`, in a thread that is named. A version that does not know of that refuses it, and does
    /// not say it in another thread.
    SayIn {
        thread: ThreadId,
        #[serde(flatten)]
        turn: RemoteTurn,
    },
    Reword {
        session: String,
        turn_id: String,
        message: Message,
    },
    Cancel {
        session: String,
        #[serde(flatten)]
        what: CancelRequest,
    },
    Approvals {
        session: String,
    },
    Decide {
        session: String,
        call_id: String,
        /// Why it is denied; it is allowed without.
        denied: Option<String>,
        scope: DecisionScope,
    },
    Questions {
        session: String,
    },
    /// A question whose form is filled in, or whose page was visited.
    FillIn {
        session: String,
        question: String,
        content: Map<String, Value>,
    },
    /// A question that is declined or cancelled.
    Dismiss {
        session: String,
        question: String,
        declined: bool,
    },
    Update {
        session: String,
        patch: Box<SessionPatch>,
        seen_ms: Option<i64>,
        now: bool,
    },
    /// The session was deleted.
    End {
        session: String,
    },
    /// Close a thread on which nothing runs.
    Release {
        thread: ThreadId,
    },
    /// End what runs on a thread, and close it.
    Leave {
        thread: ThreadId,
    },
    Unfold {
        thread: ThreadId,
        fold: Option<u64>,
    },
    Compact {
        thread: ThreadId,
        session: Option<String>,
    },
}

/// A turn that another process begins.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RemoteTurn {
    pub(super) session: String,
    pub(super) turn_id: String,
    pub(super) message: Option<Message>,
    pub(super) terms: Box<TurnTerms>,
    /// What of the terms is not written down.
    #[serde(default)]
    pub(super) may_come: bool,
}

/// How long a process has to answer what it took, and how long where it asks a model for it.
const ANSWER: Duration = Duration::from_secs(1);
const MODEL: Duration = Duration::from_secs(300);
/// Time to answer where a thread is opened or closed for it, with its backends.
const OPENING: Duration = Duration::from_secs(15);

impl RemoteRequest {
    fn patience(&self) -> Duration {
        match self {
            Self::Reword { .. }
            | Self::Cancel { .. }
            | Self::Approvals { .. }
            | Self::Decide { .. }
            | Self::Questions { .. }
            | Self::FillIn { .. }
            | Self::Dismiss { .. } => ANSWER,
            Self::Say(_)
            | Self::SayIn { .. }
            | Self::Update { .. }
            | Self::End { .. }
            | Self::Release { .. }
            | Self::Leave { .. }
            | Self::Unfold { .. } => OPENING,
            Self::Compact { .. } => MODEL,
        }
    }
}

/// Why another process did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteError {
    /// What kind of reason it is.
    pub kind: RemoteErrorKind,
    /// What failed, why, and what to do.
    pub message: String,
}

/// The kinds of reasons of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteErrorKind {
    /// What was named is not there.
    NotFound,
    /// What was said cannot be.
    Invalid,
    /// The request does not fit with how things are.
    Conflict,
    /// Somebody else changed it meanwhile.
    Changed,
    /// Too much waits already.
    Full,
    /// The other process's version does not know what was asked, so it did nothing.
    NotSupported,
    /// The other process is going down.
    Closing,
    /// A third process has the session by now.
    Moved,
    /// Something of the other process's own failed.
    Host,
}

impl From<&ManagerError> for RemoteError {
    fn from(error: &ManagerError) -> Self {
        use RemoteErrorKind as Kind;
        let kind = match error {
            ManagerError::NotFound { .. } => Kind::NotFound,
            ManagerError::Invalid { .. } => Kind::Invalid,
            ManagerError::Full { .. } => Kind::Full,
            ManagerError::Closing => Kind::Closing,
            ManagerError::Remote(error) => error.kind,
            ManagerError::Store(StoreError::Changed { .. }) => Kind::Changed,
            ManagerError::Store(StoreError::SessionBusy { .. }) => Kind::Moved,
            ManagerError::Store(StoreError::NotFound { .. } | StoreError::NoThread { .. }) => {
                Kind::NotFound
            }
            ManagerError::Conflict { .. }
            | ManagerError::Elsewhere { .. }
            | ManagerError::Session(_)
            | ManagerError::Auth(_)
            | ManagerError::Store(StoreError::NameTaken { .. } | StoreError::Busy { .. }) => {
                Kind::Conflict
            }
            ManagerError::Store(_) => Kind::Host,
        };
        Self {
            kind,
            message: error.to_string(),
        }
    }
}

/// The reply of another process to a request.
type RemoteReply = Result<Value, RemoteError>;

impl Manager {
    /// Asks the process that runs a session's turn, where that is another one.
    pub(super) async fn at_owner<T: DeserializeOwned>(
        &self,
        session: &str,
        remote: impl FnOnce() -> RemoteRequest,
    ) -> Result<Option<T>, ManagerError> {
        let Some(owner) = self.remote_owner(session).await? else {
            return Ok(None);
        };
        match self.ask_owner(&owner, &remote()).await {
            // It may be gone by now.
            Err(elsewhere @ ManagerError::Elsewhere { .. }) => {
                match self.remote_owner(session).await? {
                    Some(now) if now.writer == owner.writer => Err(elsewhere),
                    Some(_) => Err(ManagerError::Remote(RemoteError {
                        kind: RemoteErrorKind::Moved,
                        message: "another process has the session by now; try again".to_owned(),
                    })),
                    None => Ok(None),
                }
            }
            answered => answered.map(Some),
        }
    }

    /// Asks the process that has a turn, whatever goes on in its session here. Nothing where no other
    /// process has it, or where it has gone to a third one instead of being answered for.
    pub(super) async fn at_owner_of_turn<T: DeserializeOwned>(
        &self,
        turn_id: &str,
        remote: impl FnOnce() -> RemoteRequest,
    ) -> Result<Option<T>, ManagerError> {
        let Some(owner) = self.inner.store.run_owner(turn_id).await? else {
            return Ok(None);
        };
        match self.ask_owner(&owner, &remote()).await {
            Err(elsewhere @ ManagerError::Elsewhere { .. }) => {
                match self.inner.store.run_owner(turn_id).await? {
                    Some(now) if now.writer == owner.writer => Err(elsewhere),
                    Some(_) | None => Ok(None),
                }
            }
            answered => answered.map(Some),
        }
    }

    /// Like [`Self::at_owner_of_turn`], for the process that has a thread open. `None` where that does
    /// not answer, too: the store says then who has the thread.
    pub(super) async fn at_writer<T: DeserializeOwned>(
        &self,
        thread: &ThreadId,
        remote: impl FnOnce() -> RemoteRequest,
    ) -> Result<Option<T>, ManagerError> {
        let Some(owner) = self.inner.store.thread_owner(thread).await? else {
            return Ok(None);
        };
        match self.ask_owner(&owner, &remote()).await {
            Err(ManagerError::Elsewhere { .. }) => Ok(None),
            answered => answered.map(Some),
        }
    }

    pub(super) async fn remote_owner(&self, session: &str) -> Result<Option<Owner>, ManagerError> {
        if self.inner.states.is_known(session) {
            return Ok(None);
        }
        Ok(self.inner.store.session_owner(session).await?)
    }

    async fn ask_owner<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        remote: &RemoteRequest,
    ) -> Result<T, ManagerError> {
        let elsewhere = |why: &'static str| ManagerError::Elsewhere {
            pid: owner.pid,
            address: owner.address.clone(),
            why,
            is_silent: false,
        };
        let odd = |error: serde_json::Error| {
            tracing::warn!(
                pid = owner.pid,
                "another process is not understood: {error}"
            );
            elsewhere("it speaks of things that this version does not know")
        };
        let body = serde_json::to_string(remote).map_err(odd)?;
        let patience = remote.patience();
        // In a task: where whoever asks goes away, what was asked is still taken back.
        let (store, to) = (self.inner.store.clone(), owner.clone());
        let asking = tokio::spawn(async move { store.request(&to, &body, patience).await });
        let Ok(reply) = asking.await else {
            return Err(elsewhere("it was not asked to the end"));
        };
        match reply? {
            RequestReply::Answer(answer) => {
                let answered: RemoteReply = serde_json::from_str(&answer).map_err(odd)?;
                match answered {
                    Ok(answer) => serde_json::from_value(answer).map_err(odd),
                    Err(error) if error.kind == RemoteErrorKind::NotSupported => Err(elsewhere(
                        "its version does not know what is asked, so nothing was done",
                    )),
                    Err(error) => Err(ManagerError::Remote(error)),
                }
            }
            RequestReply::NotTaken => Err(ManagerError::Elsewhere {
                pid: owner.pid,
                address: owner.address.clone(),
                why: "it does not answer, so nothing was done",
                is_silent: true,
            }),
            RequestReply::NoAnswer => Err(elsewhere("it has not said yet what came of it")),
        }
    }

    /// Does what another process asks, and answers it.
    pub(super) async fn serve_request(self, request: ProcessRequest) {
        let answered: RemoteReply = match serde_json::from_str(&request.body) {
            Ok(remote) => {
                let done = Box::pin(self.serve_remote(remote)).await;
                done.map_err(|error| RemoteError::from(&error))
            }
            Err(error) => Err(RemoteError {
                kind: RemoteErrorKind::NotSupported,
                message: format!("another process asks for what is not known here: {error}"),
            }),
        };
        let answer = serde_json::to_string(&answered).unwrap_or_default();
        if let Err(error) = self.inner.store.answer_request(&request.id, &answer).await {
            tracing::warn!("another process was not answered: {error}");
        }
    }

    async fn serve_remote(&self, remote: RemoteRequest) -> Result<Value, ManagerError> {
        let nothing = Ok(Value::Null);
        match remote {
            RemoteRequest::Say(turn) => self.serve_turn(turn, None).await,
            RemoteRequest::SayIn { thread, turn } => self.serve_turn(turn, Some(thread)).await,
            RemoteRequest::Reword {
                session,
                turn_id,
                message,
            } => json(self.reword_here(&session, &turn_id, &message).await?),
            RemoteRequest::Cancel { session, what } => {
                self.cancel_here(&session, what).await;
                nothing
            }
            RemoteRequest::Approvals { session } => json(self.approvals_here(&session).await),
            RemoteRequest::Decide {
                session,
                call_id,
                denied,
                scope,
            } => {
                let decision = match denied {
                    Some(reason) => ApprovalDecision::Deny { reason },
                    None => ApprovalDecision::Allow,
                };
                self.decide_here(&session, &call_id, decision, scope)
                    .await?;
                nothing
            }
            RemoteRequest::Questions { session } => json(self.questions_here(&session)),
            RemoteRequest::FillIn {
                session,
                question,
                content,
            } => {
                let reply = QuestionReply::Accept(content);
                self.answer_here(&session, &question, &reply)?;
                nothing
            }
            RemoteRequest::Dismiss {
                session,
                question,
                declined,
            } => {
                let reply = match declined {
                    true => QuestionReply::Decline,
                    false => QuestionReply::Cancel,
                };
                self.answer_here(&session, &question, &reply)?;
                nothing
            }
            RemoteRequest::Update {
                session,
                mut patch,
                seen_ms,
                now,
            } => {
                patch.seen_ms = seen_ms;
                let when = if now {
                    EffectiveFrom::Now
                } else {
                    EffectiveFrom::NextTurn
                };
                self.update_here(&session, &patch, when).await?;
                nothing
            }
            RemoteRequest::End { session } => {
                self.end_here(&session).await;
                nothing
            }
            RemoteRequest::Release { thread } => {
                self.inner.release(&thread).await;
                nothing
            }
            RemoteRequest::Leave { thread } => {
                self.leave_here(&thread).await;
                nothing
            }
            RemoteRequest::Compact { thread, session } => {
                json(self.compact_here(&thread, session).await?)
            }
            RemoteRequest::Unfold { thread, fold } => json(self.unfold_here(&thread, fold).await?),
        }
    }
}

impl Manager {
    async fn serve_turn(
        &self,
        turn: RemoteTurn,
        thread: Option<ThreadId>,
    ) -> Result<Value, ManagerError> {
        let RemoteTurn {
            session,
            turn_id,
            message,
            mut terms,
            may_come,
        } = turn;
        terms.may_come = may_come;
        let turn = NewTurn {
            session,
            turn_id,
            message,
            thread,
            terms,
        };
        json(self.begin_here(&turn, TurnOrigin::OtherProcess).await?)
    }
}

fn json(value: impl Serialize) -> Result<Value, ManagerError> {
    serde_json::to_value(value).map_err(|error| ManagerError::Conflict {
        message: format!("the answer cannot be written: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> RemoteTurn {
        RemoteTurn {
            session: "s".to_owned(),
            turn_id: "turn".to_owned(),
            message: Some(Message::user("hello")),
            terms: Box::default(),
            may_come: true,
        }
    }

    #[test]
    fn a_turn_in_a_named_thread_is_a_request_that_older_processes_refuse() {
        let said = serde_json::to_value(RemoteRequest::Say(turn())).unwrap();
        assert_eq!(
            (&said["ask"], &said["session"]),
            (&"say".into(), &"s".into())
        );
        let thread = ThreadId::parse("t").unwrap();
        let named = RemoteRequest::SayIn {
            thread: thread.clone(),
            turn: turn(),
        };
        let named = serde_json::to_value(named).unwrap();
        assert_eq!(
            (&named["ask"], &named["thread"]),
            (&"say_in".into(), &"t".into())
        );
        let read: RemoteRequest = serde_json::from_value(named).unwrap();
        let is_same = matches!(
            read,
            RemoteRequest::SayIn { thread: read, turn } if read == thread && turn.may_come
        );
        assert!(is_same);
    }
}
