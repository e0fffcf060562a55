//! What a server says while no call of its runs: notices for its sessions, a few at a time.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::{Message, PluginEvent};
use serde_json::Value;

use crate::secrets::{Secrets, beginning};

/// The most notices in so long; a server may log all day.
const MAX_NOTICES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// The most bytes of one.
const MAX_NOTICE_BYTES: usize = 1_000;

/// Where a server's words go outside of calls.
pub(crate) struct ServerNotices {
    server: String,
    secrets: Secrets,
    emit: Box<dyn Fn(&PluginEvent) + Send + Sync>,
    /// Begin of the window in which notices are counted, and their number so far.
    window: Mutex<(Instant, u32)>,
}

impl fmt::Debug for ServerNotices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerNotices")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl ServerNotices {
    /// For a server; `tell` reaches its sessions.
    pub(crate) fn new(
        server: &str,
        secrets: Secrets,
        tell: impl Fn(&PluginEvent) + Send + Sync + 'static,
    ) -> Self {
        Self {
            server: server.to_owned(),
            secrets,
            emit: Box::new(tell),
            window: Mutex::new((Instant::now(), 0)),
        }
    }

    /// What must not be shown of what the server says.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Tells of what the host knows of the server.
    pub(super) fn warn(&self, text: &str) {
        if self.count() < MAX_NOTICES {
            (self.emit)(&PluginEvent::Notice {
                level: "warn".to_owned(),
                text: format!("MCP server `{}`: {text}", self.server),
            });
        }
    }

    /// Tells the sessions that want to hear of a resource that it says something else now.
    pub(super) fn resource_updated(&self, uri: &str) {
        (self.emit)(&PluginEvent::ResourceUpdated {
            uri: uri.to_owned(),
            sessions: Vec::new(),
        });
    }

    /// Tells of a message. What is for who looks for a fault is left out.
    pub(super) fn report(&self, message: &Message) {
        let level = match message.level.as_str() {
            "debug" => return,
            "warning" => "warn",
            "error" | "critical" | "alert" | "emergency" => "error",
            _ => "info",
        };
        let count = self.count();
        if count > MAX_NOTICES {
            return;
        }
        let logger = message.logger.as_deref();
        let logger = logger.map_or_else(String::new, |logger| format!("{logger}: "));
        let data = match &message.data {
            Value::String(text) => text.clone(),
            data => data.to_string(),
        };
        let mut said = beginning(
            self.secrets.redact(format!("{logger}{data}")),
            MAX_NOTICE_BYTES,
        );
        if count == MAX_NOTICES {
            said.push_str(" (it says more than is shown)");
        }
        (self.emit)(&PluginEvent::Notice {
            level: level.to_owned(),
            text: format!("MCP server `{}`: {said}", self.server),
        });
    }

    /// Counts a notice and returns its number in the window.
    fn count(&self) -> u32 {
        let mut told = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if told.0.elapsed() > WINDOW {
            *told = (Instant::now(), 0);
        }
        told.1 = told.1.saturating_add(1);
        told.1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_heard_outside_of_calls_and_does_not_flood() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&heard);
        let outside = ServerNotices::new(
            "s",
            Secrets::new(["hunter2"]),
            move |event: &PluginEvent| {
                to.lock().unwrap().push(event.clone());
            },
        );
        let say = |level: &str, logger: Option<&str>, data: Value| {
            outside.report(&Message {
                level: level.to_owned(),
                logger: logger.map(str::to_owned),
                data,
            });
        };
        say("debug", None, json!("not this"));
        say("critical", Some("disk"), json!({ "key": "hunter2" }));
        for _ in 0..100 {
            say("info", None, json!("again"));
        }
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 20);
        let notice = |level: &str, text: &str| PluginEvent::Notice {
            level: level.to_owned(),
            text: text.to_owned(),
        };
        let first = "MCP server `s`: disk: {\"key\":\"[secret]\"}";
        assert_eq!(heard[0], notice("error", first));
        let last = "MCP server `s`: again (it says more than is shown)";
        assert_eq!(heard[19], notice("info", last));
    }
}
