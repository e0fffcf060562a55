//! Telling a client that a list is another one now, or a resource.
//!
//! The first change is told at once. What changes right behind it is told together, so that a
//! directory full of plugins is not a message each.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::notes;
use super::session::{ClientSession, lock};
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
    /// Something that whoever is at the client should know.
    Notice(Arc<str>),
}

/// Follows the changes of a session.
pub(super) struct SessionChanges {
    revision: watch::Receiver<Revision>,
    updated: broadcast::Receiver<Arc<str>>,
    notices: broadcast::Receiver<Arc<str>>,
    told: Revision,
    /// Earliest time of the next message about the list.
    next: Instant,
}

impl SessionChanges {
    /// From now on.
    pub(super) fn of(calls: &ToolSession) -> Self {
        let mut revision = calls.revision();
        let told = *revision.borrow_and_update();
        Self {
            revision,
            updated: calls.updated(),
            notices: calls.notices(),
            told,
            next: Instant::now(),
        }
    }

    /// From when the session is open on; nothing when it ends before.
    pub(super) async fn once_open(session: std::sync::Weak<ClientSession>) -> Option<Self> {
        let mut opened = session.upgrade()?.opened();
        opened.wait_for(|opened| *opened).await.ok()?;
        let session = session.upgrade()?;
        session.open_calls().map(|calls| Self::of(calls))
    }

    /// Tells a listener of the new era until it goes, its session is over, or the server ends.
    /// `missed`: whether something may have changed before anybody listened.
    pub(super) async fn tell_listener(
        mut self,
        context: &SubscriptionContext,
        session: &Arc<ClientSession>,
        missed: bool,
    ) {
        let _listening = session.listening();
        let closing = session.common.closing.clone();
        let sink = context.sink();
        let mut changed = Some(Vec::new());
        if missed {
            changed = Some(vec![
                ChangeNotice::Tools,
                ChangeNotice::Resources,
                ChangeNotice::Prompts,
            ]);
        }
        while let Some(now) = changed {
            for change in now {
                let accepted = context.accepted();
                let uris = accepted
                    .resource_subscriptions
                    .as_deref()
                    .unwrap_or_default();
                let sent = match &change {
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
                if sent.is_err() {
                    return;
                }
            }
            changed = tokio::select! {
                changed = self.next() => changed,
                () = context.cancelled() => None,
                () = closing.cancelled() => None,
            };
        }
    }

    /// The next change; nothing when the session is over.
    pub(super) async fn next(&mut self) -> Option<Vec<ChangeNotice>> {
        loop {
            tokio::select! {
                changed = self.revision.changed() => {
                    changed.ok()?;
                    tokio::time::sleep_until(self.next).await;
                    self.next = Instant::now() + MIN_INTERVAL;
                    let now = *self.revision.borrow_and_update();
                    let mut changed = Vec::new();
                    if now.tools != self.told.tools {
                        changed.push(ChangeNotice::Tools);
                    }
                    if now.resources != self.told.resources {
                        changed.push(ChangeNotice::Resources);
                    }
                    if now.prompts != self.told.prompts {
                        changed.push(ChangeNotice::Prompts);
                    }
                    self.told = now;
                    if !changed.is_empty() {
                        return Some(changed);
                    }
                }
                uri = self.updated.recv() => match uri {
                    Ok(uri) => return Some(vec![ChangeNotice::Resource(uri)]),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                text = self.notices.recv() => match text {
                    Ok(text) => return Some(vec![ChangeNotice::Notice(text)]),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            }
        }
    }
}

/// Tells a client of the old era, on a task of its own, until it or its session goes.
pub(super) fn tell_client(peer: Peer<RoleServer>, session: &Arc<ClientSession>) {
    let subscribed = Arc::clone(session.subscribed());
    let closing = session.common.closing.clone();
    let wants = {
        let session = Arc::downgrade(session);
        move || {
            session
                .upgrade()
                .is_some_and(|it| notes::takes("notice", it.wants()))
        }
    };
    let session = Arc::downgrade(session);
    tokio::spawn(async move {
        let telling = async {
            let mut changes = SessionChanges::once_open(session).await?;
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
                        ChangeNotice::Resource(uri) => {
                            if !lock(&subscribed).contains(&*uri) {
                                continue;
                            }
                            let param = ResourceUpdatedNotificationParam::new(&*uri);
                            peer.notify_resource_updated(param).await
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
