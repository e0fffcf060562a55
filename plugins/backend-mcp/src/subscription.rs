//! What a server is to tell of by itself: changed lists, and changed resources, which are asked for
//! in `resource_subscription`.
//!
//! A server of 2026-07-28 is asked by long requests, whose answers tell of what changes. An older
//! one tells of its lists unasked. Lists and resources are asked for apart: a server that refuses a
//! resource still tells of its lists.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use tokio::task::JoinHandle;

use crate::backoff::Backoff;
use crate::connection::{Connection, Era};
use crate::registry::WatchedResources;
use crate::resource_subscription;
use crate::server::Server;

/// How long a subscription may take to be acknowledged.
pub(crate) const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the subscriptions when it is dropped.
pub(crate) struct SubscriptionGuard([JoinHandle<()>; 2]);

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// Subscribes to whatever lists the server says that it tells of, and to the resources that are
/// watched; again whenever that ends.
pub(crate) fn maintain(
    connection: &Arc<Connection>,
    server: &Arc<Server>,
    watched: &Arc<WatchedResources>,
) -> SubscriptionGuard {
    // Before anybody can wait for an answer of this connection.
    let missed = watched.begin_connection();
    let resources = resource_subscription::maintain(
        Arc::clone(connection),
        Arc::clone(server),
        Arc::clone(watched),
        missed,
    );
    let lists = listen_to_lists(Arc::clone(connection));
    SubscriptionGuard([tokio::spawn(lists), tokio::spawn(resources)])
}

/// Listens to the lists of a server of the newer era for as long as the connection lives.
async fn listen_to_lists(connection: Arc<Connection>) {
    let filter = lists(&connection);
    if connection.era == Era::Legacy || filter == SubscriptionFilter::default() {
        return;
    }
    let mut backoff = Backoff::default();
    while connection.link().close_reason().is_none() {
        let listening = connection.peer().listen(filter.clone());
        if let Ok(Ok(mut subscription)) = tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, listening).await
        {
            backoff.reset();
            // What changed before the acknowledgement was told to nobody.
            connection.link().change();
            while let Ok(Some(_)) = subscription.next().await {
                connection.link().change();
            }
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// The lists whose changes the server says that it tells of.
fn lists(connection: &Connection) -> SubscriptionFilter {
    let capabilities = &connection.info.capabilities;
    let mut filter = SubscriptionFilter::default();
    let tools = capabilities.tools.as_ref();
    filter.tools_list_changed = tools
        .and_then(|tools| tools.list_changed)
        .filter(|yes| *yes);
    let prompts = capabilities.prompts.as_ref();
    filter.prompts_list_changed = prompts
        .and_then(|prompts| prompts.list_changed)
        .filter(|yes| *yes);
    let resources = capabilities.resources.as_ref();
    filter.resources_list_changed = resources
        .and_then(|resources| resources.list_changed)
        .filter(|yes| *yes);
    filter
}
