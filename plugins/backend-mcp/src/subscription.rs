//! The subscription of 2026-07-28: one long request whose answers tell of changed lists.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use tokio::task::JoinHandle;

use crate::backoff::Backoff;
use crate::connection::Connection;

/// How long a subscription may take to be acknowledged.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends the subscription when it is dropped.
pub(crate) struct SubscriptionGuard(JoinHandle<()>);

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Subscribes to whatever lists the server says that it tells of, and again whenever that ends.
pub(crate) fn keep(connection: Arc<Connection>) -> SubscriptionGuard {
    SubscriptionGuard(tokio::spawn(async move {
        let filter = filter(&connection);
        if filter == SubscriptionFilter::default() {
            return;
        }
        let mut backoff = Backoff::default();
        while connection.link().closed().is_none() {
            let listening = connection.peer().listen(filter.clone());
            if let Ok(Ok(mut subscription)) =
                tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, listening).await
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
    }))
}

fn filter(connection: &Connection) -> SubscriptionFilter {
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
