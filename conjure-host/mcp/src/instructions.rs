//! What an MCP client is told at its beginning about the use of the tools: the words of the servers
//! behind the host.

use std::sync::Arc;
use std::time::Duration;

use super::session::ClientSession;
use conjure_config::BackendSpec;

/// How long a client may wait for the answer to its first request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(8);

/// What the backends of a client's session say about their use, each under its servers' names. A
/// server that is slow to start keeps no client waiting for long.
pub(super) async fn instructions(session: &Arc<ClientSession>) -> Option<String> {
    let common = &session.common;
    let may_say = |spec: &BackendSpec| {
        let snapshot = common.host.registry().snapshot();
        let mut versions = snapshot.versions(&spec.kind);
        versions.any(|plugin| plugin.manifest().kind == "backend")
    };
    if !common.spec.backends.iter().any(may_say) {
        return None;
    }
    let opened = Arc::clone(session);
    // Nobody begins anew when the time is over.
    let opening = tokio::spawn(async move {
        if let Ok(calls) = opened.calls().await {
            calls.wait_for_listing(HANDSHAKE_TIMEOUT).await;
        }
    });
    let _ = tokio::time::timeout(HANDSHAKE_TIMEOUT, opening).await;
    let said = session.open_calls()?.instructions();
    (!said.is_empty()).then(|| conjure_core::context::instructions(&said))
}
