//! The client's side of what a server begins itself: its requests and notifications.

use std::sync::Arc;

use conjure_skill_sdk::Cx;
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientResult, CustomResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion, ServerNotification, ServerRequest,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, Service};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::asking::QuestionPolicy;
use crate::link::{Link, PendingRequest};

/// Questions of one server that may wait for an answer at the same time.
const MAX_QUESTIONS: usize = 8;

/// Gives the context to ask through when no call runs.
pub(crate) type ContextSource = Arc<dyn Fn() -> Option<Cx> + Send + Sync>;

/// Name and version of the host, as servers are told.
pub(crate) fn identity() -> Implementation {
    Implementation::new("conjure", env!("CARGO_PKG_VERSION"))
}

/// Serves one connection.
pub(crate) struct Handler {
    link: Arc<Link>,
    policy: QuestionPolicy,
    context_source: ContextSource,
    question_slots: Semaphore,
}

impl Handler {
    /// For a connection that asks in the name of `policy`'s server.
    pub(crate) fn new(link: Arc<Link>, policy: QuestionPolicy, standing: ContextSource) -> Self {
        Self {
            link,
            policy,
            context_source: standing,
            question_slots: Semaphore::new(MAX_QUESTIONS),
        }
    }
}

impl Service<RoleClient> for Handler {
    async fn handle_request(
        &self,
        request: ServerRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Ok(ClientResult::empty(()));
        }
        let Ok(_permit) = self.question_slots.try_acquire() else {
            let busy = format!("{MAX_QUESTIONS} questions wait for an answer already");
            return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, busy, None));
        };
        let origin = context.extensions.get::<InboundStreamOrigin>();
        let id = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        let pending = self.link.asking_request(id);
        let _asking = pending.as_ref().map(PendingRequest::ask);
        let own = pending.as_ref().and_then(|request| request.cx.clone());
        let cx = own.or_else(|| (self.context_source)());
        let value = serde_json::to_value(&request).unwrap_or_default();
        let method = value.get("method").and_then(Value::as_str);
        let params = value.get("params").unwrap_or(&Value::Null);
        let answer = self
            .policy
            .answer(cx.as_ref(), method.unwrap_or_default(), params);
        tokio::select! {
            answer = answer => Ok(ClientResult::CustomResult(CustomResult(answer?))),
            () = context.ct.cancelled() => {
                Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, "it was cancelled", None))
            }
        }
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        match notification {
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_) => self.link.change(),
            ServerNotification::ResourceUpdatedNotification(updated) => {
                self.link.resource_updated(&updated.params.uri);
            }
            _ => {}
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        // rmcp's default says 2026-07-28 even for the handshake of the era before.
        ClientConfig::new(self.policy.capabilities(), identity())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
