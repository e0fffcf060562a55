//! A turn whose thread is being opened.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::opening::OpenSessionThread;
use super::spec::SettingsDigest;
use super::turn_queue::QueuedTurn;
use super::{ManagerError, ManagerState};

/// A turn that begins when its thread is open. Dropping it gives up opening.
pub(super) struct OpeningTurn {
    pub(super) turn: QueuedTurn,
    /// What was saved of the session since it began to open, which it may have missed.
    pub(super) changed_settings: Option<SettingsDigest>,
    task: AbortOnDropHandle<Result<OpenSessionThread, ManagerError>>,
}

impl OpeningTurn {
    /// Opens a turn's thread, with what is saved of the session now, on a task of its own. What was
    /// open before is waited for.
    pub(super) fn start(
        manager: Arc<ManagerState>,
        session: &str,
        turn: QueuedTurn,
        before: Option<JoinHandle<()>>,
    ) -> Self {
        let (session, thread) = (session.to_owned(), turn.thread.clone());
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let row = manager.store.session(&session).await?;
            manager.open(&row, &thread).await
        });
        Self {
            turn,
            changed_settings: None,
            task: AbortOnDropHandle::new(task),
        }
    }

    /// Waits until it is open.
    pub(super) async fn wait(&mut self) -> Result<OpenSessionThread, ManagerError> {
        match (&mut self.task).await {
            Ok(opened) => opened,
            Err(error) => Err(ManagerError::Conflict {
                message: format!("opening the session broke: {error}"),
            }),
        }
    }
}
