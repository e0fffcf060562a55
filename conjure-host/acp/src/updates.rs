//! The way of updates to the client.

use std::sync::Arc;

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, MessageId, SessionId, SessionNotification, SessionUpdate,
    TextContent,
};

use super::transport::Outflow;

/// Tells a client what happens in one session.
#[derive(Clone)]
pub(crate) struct Updates {
    client: ConnectionTo<Client>,
    session: SessionId,
    outflow: Arc<Outflow>,
}

impl Updates {
    pub(crate) fn new(
        client: ConnectionTo<Client>,
        session: SessionId,
        outflow: Arc<Outflow>,
    ) -> Self {
        Self {
            client,
            session,
            outflow,
        }
    }

    pub(crate) fn client(&self) -> &ConnectionTo<Client> {
        &self.client
    }

    pub(crate) fn session(&self) -> &SessionId {
        &self.session
    }

    /// Tells it, as soon as the client has read enough of what came before. A client that is gone
    /// is told nothing.
    pub(crate) async fn send(&self, update: SessionUpdate) {
        if self.client.termination().is_some() {
            return;
        }
        tokio::select! {
            () = self.outflow.reserve() => {}
            _ = self.client.terminated() => return,
        }
        let note = SessionNotification::new(self.session.clone(), update);
        if let Err(error) = self.client.send_notification(note) {
            tracing::debug!("an update did not reach the client: {error}");
        }
    }

    pub(crate) async fn send_all(&self, updates: Vec<SessionUpdate>) {
        for update in updates {
            self.send(update).await;
        }
    }
}

/// A piece of a message.
pub(crate) fn chunk(text: impl Into<String>, message: &str) -> ContentChunk {
    let text = ContentBlock::Text(TextContent::new(text.into()));
    ContentChunk::new(text).message_id(MessageId::new(message))
}
