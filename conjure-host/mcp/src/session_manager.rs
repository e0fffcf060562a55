//! The sessions of the old era over HTTP, each with a slot of its client's for as long as it lives.
//!
//! The SDK makes a session without saying for which request. So a request that is let in says so
//! itself, to everything that runs on its task.

use std::sync::{Arc, OnceLock};

use axum::http::request::Parts;
use futures_util::Stream;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, ServerJsonRpcMessage};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};

use super::clients::Principal;
use super::session_slots::{NoSlot, SessionSlot, SessionSlots};

tokio::task_local! {
    /// The request that the task serves.
    static ADMITTED: Arc<AdmittedRequest>;
}

/// A request that was let in.
#[derive(Debug)]
pub(super) struct AdmittedRequest {
    /// The client that sent the request.
    pub(super) principal: Principal,
    /// The slot of the session that it began.
    slot: OnceLock<Arc<SessionSlot>>,
    refused: OnceLock<NoSlot>,
}

impl AdmittedRequest {
    pub(super) fn new(principal: Principal) -> Arc<Self> {
        Arc::new(Self {
            principal,
            slot: OnceLock::new(),
            refused: OnceLock::new(),
        })
    }

    /// The one that something over HTTP came with.
    ///
    /// # Errors
    /// When it came in another way.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Result<&Self, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let admitted = parts.and_then(|parts| parts.extensions.get::<Arc<Self>>());
        admitted.map(AsRef::as_ref).ok_or_else(|| {
            ErrorData::internal_error("nobody is known to have sent this; this is a bug", None)
        })
    }

    /// Does what the request asks for.
    pub(super) async fn serve<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        ADMITTED.scope(Arc::clone(self), work).await
    }

    /// Slot of the session that it began.
    pub(super) fn slot(&self) -> Option<Arc<SessionSlot>> {
        self.slot.get().cloned()
    }

    /// Why it began none, where there was no slot for it.
    pub(super) fn refused(&self) -> Option<&NoSlot> {
        self.refused.get()
    }

    /// Takes the slot of the session that it begins.
    fn take_slot(&self, slots: &SessionSlots) -> Result<Arc<SessionSlot>, NoSlot> {
        let slot = slots.take(&self.principal).map(Arc::new);
        // A request begins one session at the most.
        match &slot {
            Ok(slot) => {
                let _ = self.slot.set(Arc::clone(slot));
            }
            Err(why) => {
                let _ = self.refused.set(why.clone());
            }
        }
        slot
    }
}

/// Why a session is not to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionManagerError {
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    #[error("nobody is known to have sent this; this is a bug")]
    UnknownSender,
}

/// The SDK's own sessions, no more of them than there are slots.
pub(super) struct BoundedSessions {
    pub(super) local: LocalSessionManager,
    slots: SessionSlots,
}

impl BoundedSessions {
    pub(super) fn new(local: LocalSessionManager, slots: SessionSlots) -> Self {
        Self { local, slots }
    }
}

impl SessionManager for BoundedSessions {
    type Error = SessionManagerError;
    type Transport = SlotTransport<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let admitted = ADMITTED.try_with(Arc::clone);
        let admitted = admitted.map_err(|_| SessionManagerError::UnknownSender)?;
        let slot = admitted.take_slot(&self.slots)?;
        let (id, transport) = self.local.create_session().await?;
        let transport = SlotTransport {
            transport,
            _slot: slot,
        };
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        Ok(self.local.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.local.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        Ok(self.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.local.resume(id, last_event_id).await?)
    }
}

/// The transport of a session, which holds the session's slot.
pub(super) struct SlotTransport<T> {
    transport: T,
    _slot: Arc<SessionSlot>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for SlotTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.transport.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}
