//! Telling a client that a list is another one now, or a resource.
//!
//! The first change is told at once. What changes right behind it is told together, so that a
//! directory full of plugins is not a message each.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{ServiceError, SubscriptionContext};
use rmcp::{Peer, RoleServer};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use super::notes;
use super::session::ClientSession;
use super::subscriptions::{ResourceStream, Subscriptions};
use conjure_runtime::session::{Revision, ToolSession};

/// The shortest time between two messages about one list.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeNotice {
    Tools,
    Resources,
    Prompts,
    Resource(Arc<str>),
    /// More changed than could wait: each resource that is wanted may be another one now.
    AnyResource,
    /// Something that whoever is at the client should know.
    Notice(Arc<str>),
}

/// Follows the changes of a session.
pub(super) struct SessionChanges {
    revision: watch::Receiver<Revision>,
    updated: broadcast::Receiver<Arc<str>>,
    notices: broadcast::Receiver<Arc<str>>,
    /// Resources that may have changed before their sources knew of a listener.
    missed: mpsc::UnboundedReceiver<Arc<str>>,
    last_revision: Revision,
    /// Earliest time of the next message about the list.
    next_message_at: Instant,
}

impl SessionChanges {
    /// From now on.
    pub(super) fn of(calls: &ToolSession) -> Self {
        let mut revision = calls.revision();
        let told = *revision.borrow_and_update();
        Self {
            revision,
            updated: calls.resource_updates(),
            notices: calls.notices(),
            missed: mpsc::unbounded_channel().1,
            last_revision: told,
            next_message_at: Instant::now(),
        }
    }

    /// From when the session is open on; nothing when it ends before.
    pub(super) async fn after_open(session: std::sync::Weak<ClientSession>) -> Option<Self> {
        let mut opened = session.upgrade()?.opened();
        opened.wait_for(|opened| *opened).await.ok()?;
        let session = session.upgrade()?;
        session.open_calls().map(|calls| Self::of(calls))
    }

    /// Tells a listener of the new era until it goes, its session is over, or the server ends, and
    /// the sources of its resources at the same time. `missed` is what may have changed before
    /// anybody listened.
    pub(super) async fn notify_listener(
        mut self,
        context: &SubscriptionContext,
        session: &ClientSession,
        stream: &ResourceStream<'_>,
        missed: Vec<ChangeNotice>,
    ) {
        let closing = session.common.closing.clone();
        let (out, missed_resources) = mpsc::unbounded_channel();
        self.missed = missed_resources;
        let telling_sources = async {
            stream.subscribe_sources(out).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.forward(context, stream, missed) => {}
            () = telling_sources => {}
            () = context.cancelled() => {}
            () = closing.cancelled() => {}
        }
    }

    /// Passes changes on to a listener, until it takes no more or the session is over.
    async fn forward(
        &mut self,
        context: &SubscriptionContext,
        stream: &ResourceStream<'_>,
        missed: Vec<ChangeNotice>,
    ) -> Option<()> {
        let mut changed = missed;
        loop {
            for change in changed {
                match change {
                    ChangeNotice::AnyResource => notify_all_resources(context, stream).await?,
                    change => notify_change(context, &change).await?,
                }
            }
            changed = self.next().await?;
        }
    }

    /// The next change; nothing when the session is over.
    pub(super) async fn next(&mut self) -> Option<Vec<ChangeNotice>> {
        loop {
            tokio::select! {
                changed = self.revision.changed() => {
                    changed.ok()?;
                    tokio::time::sleep_until(self.next_message_at).await;
                    self.next_message_at = Instant::now() + MIN_INTERVAL;
                    let now = *self.revision.borrow_and_update();
                    let mut changed = Vec::new();
                    if now.tools != self.last_revision.tools {
                        changed.push(ChangeNotice::Tools);
                    }
                    if now.resources != self.last_revision.resources {
                        changed.push(ChangeNotice::Resources);
                    }
                    if now.prompts != self.last_revision.prompts {
                        changed.push(ChangeNotice::Prompts);
                    }
                    self.last_revision = now;
                    if !changed.is_empty() {
                        return Some(changed);
                    }
                }
                uri = self.updated.recv() => match uri {
                    Ok(uri) => return Some(vec![ChangeNotice::Resource(uri)]),
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        return Some(vec![ChangeNotice::AnyResource]);
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                Some(uri) = self.missed.recv() => return Some(vec![ChangeNotice::Resource(uri)]),
                text = self.notices.recv() => match text {
                    Ok(text) => return Some(vec![ChangeNotice::Notice(text)]),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            }
        }
    }
}

/// Tells a listener of a change, if it wants to hear of such; nothing where it takes no more.
async fn notify_change(context: &SubscriptionContext, change: &ChangeNotice) -> Option<()> {
    let (accepted, sink) = (context.accepted(), context.sink());
    let uris = accepted
        .resource_subscriptions
        .as_deref()
        .unwrap_or_default();
    let sent = match change {
        ChangeNotice::Tools if accepted.tools_list_changed == Some(true) => {
            sink.notify_tool_list_changed().await
        }
        ChangeNotice::Resources if accepted.resources_list_changed == Some(true) => {
            sink.notify_resource_list_changed().await
        }
        ChangeNotice::Prompts if accepted.prompts_list_changed == Some(true) => {
            sink.notify_prompt_list_changed().await
        }
        ChangeNotice::Resource(uri) if uris.iter().any(|known| **known == **uri) => {
            sink.notify_resource_updated(uri.as_ref()).await
        }
        _ => Ok(()),
    };
    sent.ok()
}

/// Tells a listener of each resource that it wants to hear of; nothing where it takes no more.
async fn notify_all_resources(
    context: &SubscriptionContext,
    stream: &ResourceStream<'_>,
) -> Option<()> {
    for uri in stream.uris() {
        context.sink().notify_resource_updated(uri).await.ok()?;
    }
    Some(())
}

/// Tells a client of the old era that resources changed, of those that it asked for.
async fn notify_requested(
    peer: &Peer<RoleServer>,
    subscriptions: &Subscriptions,
    change: &ChangeNotice,
) -> Result<(), ServiceError> {
    let uris = match change {
        ChangeNotice::AnyResource => subscriptions.requested(),
        ChangeNotice::Resource(uri) if subscriptions.is_requested(uri) => [uri.to_string()].into(),
        _ => return Ok(()),
    };
    for uri in uris {
        let param = ResourceUpdatedNotificationParam::new(uri);
        peer.notify_resource_updated(param).await?;
    }
    Ok(())
}

/// Tells a client of the old era, on a task of its own, until it or its session goes.
pub(super) fn notify_client(peer: Peer<RoleServer>, session: &Arc<ClientSession>) {
    let subscriptions = Arc::clone(session.subscriptions());
    let closing = session.common.closing.clone();
    let wants = {
        let session = Arc::downgrade(session);
        move || {
            session
                .upgrade()
                .is_some_and(|it| notes::accepts_level("notice", it.message_filter()))
        }
    };
    let session = Arc::downgrade(session);
    tokio::spawn(async move {
        let telling = async {
            let mut changes = SessionChanges::after_open(session).await?;
            while let Some(now) = changes.next().await {
                for change in now {
                    let sent = match change {
                        ChangeNotice::Tools => peer.notify_tool_list_changed().await,
                        ChangeNotice::Resources => peer.notify_resource_list_changed().await,
                        ChangeNotice::Prompts => peer.notify_prompt_list_changed().await,
                        ChangeNotice::Notice(text) => {
                            if !wants() {
                                continue;
                            }
                            let note = notes::message("notice", "conjure", &text.as_ref().into());
                            peer.send_notification(note).await
                        }
                        ChangeNotice::Resource(_) | ChangeNotice::AnyResource => {
                            notify_requested(&peer, &subscriptions, &change).await
                        }
                    };
                    sent.ok()?;
                }
            }
            Some(())
        };
        closing.run_until_cancelled(telling).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_updates_were_lost_any_resource_may_have_changed() {
        let (_revision, revision) = watch::channel(Revision::default());
        let (updates, updated) = broadcast::channel(1);
        let (_notices, notices) = broadcast::channel(1);
        let (sources, missed) = mpsc::unbounded_channel();
        let mut changes = SessionChanges {
            revision,
            updated,
            notices,
            missed,
            last_revision: Revision::default(),
            next_message_at: Instant::now(),
        };
        for uri in ["a", "b"] {
            updates.send(Arc::from(uri)).unwrap();
        }
        let any = vec![ChangeNotice::AnyResource];
        assert_eq!(changes.next().await, Some(any));
        let last = vec![ChangeNotice::Resource(Arc::from("b"))];
        assert_eq!(changes.next().await, Some(last));
        // A source that knows of the listener only now is no update of its own.
        sources.send(Arc::from("c")).unwrap();
        let missed = vec![ChangeNotice::Resource(Arc::from("c"))];
        assert_eq!(changes.next().await, Some(missed));
    }
}
