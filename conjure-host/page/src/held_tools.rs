//! What is held until somebody approves it, and when that is otherwise. Another program approves
//! without a word to this one, so it is looked for: once for all pages, and only while one is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::client::{ApiClient, ApiProblem};
use crate::fingerprint::fingerprint;
use crate::saved::items;

/// How often it is looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A tool that is held.
#[derive(Deserialize)]
pub(crate) struct HeldToolInfo {
    pub(crate) digest: String,
    pub(crate) backend: String,
    pub(crate) server: Option<String>,
    pub(crate) tool: Option<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) approved: ToolDefinitionInfo,
    pub(crate) now: ToolDefinitionInfo,
}

#[derive(Deserialize)]
pub(crate) struct ToolDefinitionInfo {
    pub(crate) description: String,
    pub(crate) input_schema: Value,
}

/// Number for a set of held tools: equal as long as the tools and their definitions are.
pub(crate) fn held_mark(held: &[HeldToolInfo]) -> u64 {
    let digests: Vec<&str> = held.iter().map(|tool| tool.digest.as_str()).collect();
    fingerprint(&digests.join(" "))
}

/// What is held, for all pages. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct HeldTools {
    api: ApiClient,
    /// What each look found.
    marks: Arc<watch::Sender<u64>>,
    /// Whether somebody looks. Pages begin to follow, and the last look ends, under this lock.
    polling: Arc<Mutex<bool>>,
}

impl HeldTools {
    pub(crate) fn new(api: ApiClient) -> Self {
        Self {
            api,
            marks: Arc::new(watch::Sender::new(0)),
            polling: Arc::default(),
        }
    }

    /// What is held.
    pub(crate) async fn list(&self) -> Result<Vec<HeldToolInfo>, ApiProblem> {
        items(&self.api, "/api/v1/held-tools").await
    }

    /// Tells when other tools are held than `known`, a [`held_mark`].
    pub(crate) fn follow(&self, known: u64) -> HeldToolWatch {
        let mut is_looking = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = self.marks.subscribe();
        if !std::mem::replace(&mut *is_looking, true) {
            tokio::spawn(self.clone().poll());
        }
        HeldToolWatch {
            marks,
            last_mark: known,
        }
    }

    /// Looks until nobody follows any more.
    async fn poll(self) {
        let mut next = interval_at(Instant::now() + POLL_INTERVAL, POLL_INTERVAL);
        next.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            next.tick().await;
            if self.has_no_followers() {
                return;
            }
            // What cannot be read is looked for again.
            if let Ok(held) = self.list().await {
                self.marks.send_replace(held_mark(&held));
            }
        }
    }

    /// Whether nobody follows; then nobody looks either.
    fn has_no_followers(&self) -> bool {
        let mut is_looking = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        *is_looking = self.marks.receiver_count() > 0;
        !*is_looking
    }
}

/// Waits for tools that are held now, or no more.
pub(crate) struct HeldToolWatch {
    marks: watch::Receiver<u64>,
    /// What was held at the last look.
    last_mark: u64,
}

impl HeldToolWatch {
    /// Waits until it is otherwise than at the last look; never where nobody looks any more. Safe to
    /// drop and call again.
    pub(crate) async fn wait_for_change(&mut self) {
        while self.marks.changed().await.is_ok() {
            let now = *self.marks.borrow_and_update();
            if std::mem::replace(&mut self.last_mark, now) != now {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_look_serves_all_pages_and_ends_with_the_last_of_them() {
        let looks = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&looks);
        let list = move || {
            // Another tool is held at each look.
            let digest = counted.fetch_add(1, Ordering::Relaxed).to_string();
            let definition = json!({ "description": "", "input_schema": {} });
            let tool = json!({ "digest": digest, "backend": "mcp", "server": null, "tool": null,
                "changed": [], "approved": definition, "now": definition });
            async move { Json(json!({ "items": [tool], "next": null })) }
        };
        let api = Router::new().route("/api/v1/held-tools", get(list));
        let held = HeldTools::new(ApiClient::new(api));
        let known = held_mark(&held.list().await.unwrap());
        looks.store(0, Ordering::Relaxed);
        // The first look finds what the pages show already, the second one something else.
        let mut pages: Vec<HeldToolWatch> = (0..10).map(|_| held.follow(known)).collect();
        for page in &mut pages {
            page.wait_for_change().await;
        }
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        drop(pages);
        for _ in 0..10 {
            tokio::time::advance(POLL_INTERVAL).await;
            tokio::task::yield_now().await;
        }
        assert!(!*held.polling.lock().unwrap());
        assert_eq!(looks.load(Ordering::Relaxed), 2);
        // Whoever comes back is told again.
        held.follow(known).wait_for_change().await;
        assert_eq!(looks.load(Ordering::Relaxed), 3);
    }
}
