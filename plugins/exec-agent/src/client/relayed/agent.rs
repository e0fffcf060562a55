//! A session's agent behind a relay, and whether it still answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::route::{RelayRoute, Relayed};
use super::stream::{ResumableStream, StreamInput};
use crate::client::AgentLink;

/// How long an agent may take to answer anything, over a connection that carries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for a connection to carry anything.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// The agent of a session.
#[derive(Debug)]
pub struct RelayedAgent {
    /// The stream to it, as calls use it.
    pub link: Arc<AgentLink>,
    /// The stream to the agent, as connections carry it.
    pub stream: Arc<ResumableStream>,
    /// Whether the agent is being probed.
    probing: watch::Sender<bool>,
}

impl RelayedAgent {
    /// The agent that a connection leads to, and others on this route after it.
    pub fn new<R: RelayRoute>(
        route: Arc<R>,
        stream: Arc<ResumableStream>,
        connection: Relayed<R::Carrier>,
    ) -> Self {
        let input = Box::pin(StreamInput(Arc::clone(&stream)));
        let runs = Arc::clone(&stream);
        let link = AgentLink::new(input, |feed| runs.run(route, connection, feed));
        Self {
            link: Arc::new(link),
            stream,
            probing: watch::Sender::new(false),
        }
    }

    /// Whether the agent is being probed.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        *self.probing.borrow()
    }

    /// Looks whether it still answers, unless that is being done; `given_up` is for one that does
    /// not. While the connection may be at fault nothing is done.
    pub fn probe<F: Future<Output = ()> + Send>(
        self: &Arc<Self>,
        given_up: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) {
        if self.stream.time_lost().is_some() || self.probing.send_replace(true) {
            return;
        }
        let suspect = Arc::clone(self);
        tokio::spawn(async move {
            if suspect.is_stuck().await {
                given_up(Arc::clone(&suspect)).await;
            }
            suspect.probing.send_replace(false);
        });
    }

    /// Becomes ready when it is known whether it still answers.
    pub async fn until_probed(&self) {
        let _ = self
            .probing
            .subscribe()
            .wait_for(|suspected| !suspected)
            .await;
    }

    /// Whether it answers nothing although the connection carries what it is asked.
    async fn is_stuck(&self) -> bool {
        let answers = self.link.answers();
        let mut answers = std::pin::pin!(answers);
        tokio::select! {
            // What the agent is asked goes first.
            biased;
            // Or it is over, which every call finds out.
            _ = &mut answers => return false,
            () = self.stream.until_lost() => return false,
            () = tokio::time::sleep(PROBE_TIMEOUT) => return false,
            () = self.stream.until_carried() => {}
        }
        let before = self.stream.progress();
        tokio::select! {
            _ = &mut answers => false,
            () = self.stream.until_lost() => false,
            () = tokio::time::sleep(ANSWER_TIMEOUT) => self.stream.progress() == before,
        }
    }
}
