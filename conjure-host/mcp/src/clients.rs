//! The clients of a server, and the session that each of them has.
//!
//! A connection has a session of its own: the one over stdio, and each session of the old era over
//! HTTP. Requests of the era of 2026-07-28 belong to no session over HTTP; there a session belongs
//! to a client as far as clients can be told apart: by token, by what the client calls itself, and
//! by what it declares that it can answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, Tool};
use rmcp::service::RequestContext;

use super::client_questions::ClientQuestionKinds;
use super::session::{ClientSession, SharedServerState, lock};
use super::session_manager::AdmittedRequest;
use super::session_slots::{NoSlot, SessionSlot, SessionSlots};

/// How often idle sessions are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Time for all sessions together to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The clients.
pub(super) struct ClientSessions {
    pub(super) common: Arc<SharedServerState>,
    /// Slots of all sessions over HTTP.
    pub(super) slots: SessionSlots,
    /// Sessions of clients without connections.
    shared: Mutex<HashMap<Identity, Arc<ClientSession>>>,
    /// All sessions that may be open.
    all: Mutex<Vec<Weak<ClientSession>>>,
}

/// The client on the other side of an HTTP request, by the token that let it in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Principal(pub(super) Arc<str>);

/// A client whose requests stand for themselves, as far as it can be told from others.
///
/// Many programs of one person come with one token. What servers offer may depend on what their
/// client can answer, so clients that declare different things are different ones too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    principal: Principal,
    /// Name and version of the client's program.
    program: Option<(String, String)>,
    pub(super) kinds: ClientQuestionKinds,
}

impl Identity {
    /// The identity that sent a request.
    pub(super) fn of(principal: &Principal, context: &RequestContext<RoleServer>) -> Self {
        let program = context.client_info();
        Self {
            principal: principal.clone(),
            program: program.map(|program| (program.name, program.version)),
            kinds: ClientQuestionKinds::of(context.client_capabilities().as_ref()),
        }
    }
}

impl ClientSessions {
    /// The sessions of a server that lets so many clients in.
    pub(super) fn new(common: SharedServerState, clients: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: SessionSlots::new(common.options.max_sessions, clients),
            common: Arc::new(common),
            shared: Mutex::default(),
            all: Mutex::default(),
        })
    }

    /// A session of a connection's own, with its slot over HTTP. It ends with its last holder.
    pub(super) fn new_session(&self, slot: Option<Arc<SessionSlot>>) -> Arc<ClientSession> {
        let session = ClientSession::new(Arc::clone(&self.common), slot);
        let mut all = lock(&self.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&session));
        session
    }

    /// The session of a client.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn get_or_begin_shared_session(
        &self,
        client: &Identity,
    ) -> Result<Arc<ClientSession>, ErrorData> {
        // Until it is in there, or two requests of one client would take a slot each.
        let mut shared = lock(&self.shared);
        if let Some(known) = shared.get(client) {
            return Ok(Arc::clone(known));
        }
        let slot = self.slots.take(&client.principal)?;
        let session = self.new_session(Some(Arc::new(slot)));
        shared.insert(client.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// The session of a connection over HTTP, with the slot that its request has taken, or one of its
    /// own.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn begin_connection_session(
        &self,
        by: &AdmittedRequest,
    ) -> Result<Arc<ClientSession>, ErrorData> {
        let slot = match by.slot() {
            Some(slot) => slot,
            None => Arc::new(self.slots.take(&by.principal)?),
        };
        Ok(self.new_session(Some(slot)))
    }

    /// A served tool by its name, of any session.
    pub(super) fn tool(&self, name: &str) -> Option<Tool> {
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        let mut known = all.iter().filter_map(|session| session.cached_tools());
        known.find_map(|tools| tools.find(name).map(|served| served.tool.clone()))
    }

    /// Number of changes in all sessions together.
    pub(super) fn changes(&self) -> u64 {
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        let open = all.iter().filter_map(|session| session.open_calls());
        open.map(|calls| calls.revision().borrow().sum()).sum()
    }

    /// Ends the shared sessions that nobody has used for long, until the server ends.
    pub(super) async fn sweep(&self) {
        let closing = &self.common.closing;
        while closing
            .run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL))
            .await
            .is_some()
        {
            let limit = self.common.options.idle;
            let idle: Vec<Arc<ClientSession>> = {
                let mut shared = lock(&self.shared);
                let long =
                    |session: &ClientSession| session.idle().is_some_and(|idle| idle >= limit);
                shared
                    .extract_if(|_, session| long(session))
                    .map(|(_, s)| s)
                    .collect()
            };
            join_all(idle.iter().map(|session| session.close())).await;
        }
    }

    /// Ends all sessions.
    pub(super) async fn close(&self) {
        self.common.closing.cancel();
        let all: Vec<_> = lock(&self.all).iter().filter_map(Weak::upgrade).collect();
        let ending = &self.common.ending;
        ending.close();
        let closing = async {
            join_all(all.iter().map(|session| session.close())).await;
            ending.wait().await;
        };
        if tokio::time::timeout(END_TIMEOUT, closing).await.is_err() {
            tracing::warn!("some sessions did not end within {END_TIMEOUT:?}");
        }
        lock(&self.shared).clear();
    }
}

impl From<NoSlot> for ErrorData {
    fn from(why: NoSlot) -> Self {
        Self::internal_error(why.to_string(), None)
    }
}
