//! What a call says while it runs, as a client hears it: progress, messages, live output.
//!
//! Progress goes out when the request has a progress token. Messages go out when the client asked
//! for their level. Live output is progress with a message, and without a token it is a message.

use std::sync::Arc;

use conjure_abi::EmitKind;
use rmcp::model::{
    CustomNotification, ProgressNotificationParam, ProgressToken, ServerNotification,
};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use conjure_runtime::backend::LiveOutput;
use conjure_runtime::session::ToolSession;

/// Notes of one call that may wait; of more the newest are left out.
const MAX_WAITING_NOTES: usize = 1024;
/// The most bytes of live output in one note.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// Something that a call said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallNote {
    /// Progress of the call.
    Progress {
        done: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    /// A message with its level.
    Log {
        level: String,
        logger: Option<String>,
        data: Value,
    },
    /// Live output.
    Output { stream: &'static str, text: String },
}

/// Takes what a call says: events that concern the session stay there, the others become notes.
pub(super) fn listener(calls: &Arc<ToolSession>) -> (LiveOutput, mpsc::Receiver<CallNote>) {
    let (notes, receiver) = mpsc::channel(MAX_WAITING_NOTES);
    let calls = Arc::downgrade(calls);
    let live: LiveOutput = Arc::new(move |kind, bytes: &[u8]| {
        if kind == EmitKind::Event
            && let Some(calls) = calls.upgrade()
        {
            calls.handle_event(kind, bytes);
        }
        if let Some(note) = CallNote::of(kind, bytes) {
            // A client that does not keep up must not hold the call.
            let _ = notes.try_send(note);
        }
    });
    (live, receiver)
}

impl CallNote {
    fn of(kind: EmitKind, bytes: &[u8]) -> Option<Self> {
        let stream = match kind {
            EmitKind::Stdout => "stdout",
            EmitKind::Stderr => "stderr",
            EmitKind::Event => return Self::event(&serde_json::from_slice(bytes).ok()?),
        };
        let shown = bytes.get(..MAX_OUTPUT_BYTES).unwrap_or(bytes);
        Some(Self::Output {
            stream,
            text: String::from_utf8_lossy(shown).into_owned(),
        })
    }

    fn event(event: &Value) -> Option<Self> {
        let text = |name: &str| event.get(name).and_then(Value::as_str).map(str::to_owned);
        match event.get("event")?.as_str()? {
            "progress" => Some(Self::Progress {
                done: event.get("done")?.as_f64()?,
                total: event.get("total").and_then(Value::as_f64),
                message: text("message"),
            }),
            "log" => Some(Self::Log {
                level: text("level").unwrap_or_else(|| "info".to_owned()),
                logger: text("logger"),
                data: event.get("data").cloned().unwrap_or_default(),
            }),
            "notice" => Some(Self::Log {
                level: match text("level").as_deref() {
                    Some("error") => "error",
                    Some("warn") => "warning",
                    _ => "info",
                }
                .to_owned(),
                logger: None,
                data: text("text")?.into(),
            }),
            _ => None,
        }
    }
}

/// The levels of messages, the least important first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// Rank of a level; one that is not known counts as `info`.
pub(super) fn rank(level: &str) -> usize {
    let known = LEVELS.iter().position(|known| *known == level);
    known.unwrap_or(1)
}

/// The messages that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageFilter {
    /// No messages.
    Nothing,
    /// What a tool says on purpose, from `info` on: a client of the old era that set no level.
    ToolMessages,
    /// From this rank on, live output too.
    From(usize),
}

/// Whether a client gets messages of this level.
pub(super) fn accepts_level(level: &str, wants: MessageFilter) -> bool {
    match wants {
        MessageFilter::Nothing => false,
        MessageFilter::ToolMessages => rank(level) >= rank("info"),
        MessageFilter::From(from) => rank(level) >= from,
    }
}

/// Destination of the notes of one request.
pub(super) struct Outlet {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    filter: MessageFilter,
    tool: String,
    /// Bytes of live output so far, which count as progress.
    bytes: f64,
    /// Whether the tool tells its progress itself.
    has_own_progress: bool,
}

impl Outlet {
    pub(super) fn new(
        peer: Peer<RoleServer>,
        token: Option<ProgressToken>,
        wants: MessageFilter,
        tool: &str,
    ) -> Self {
        Self {
            peer,
            token,
            filter: wants,
            tool: tool.to_owned(),
            bytes: 0.0,
            has_own_progress: false,
        }
    }

    pub(super) async fn send(&mut self, note: CallNote) {
        if let Some(notification) = self.notification(note) {
            // A client that is gone ends the request by itself.
            let _ = self.peer.send_notification(notification).await;
        }
    }

    fn notification(&mut self, note: CallNote) -> Option<ServerNotification> {
        match note {
            CallNote::Progress {
                done,
                total,
                message,
            } => {
                self.has_own_progress = true;
                let mut param = ProgressNotificationParam::new(self.token.clone()?, done);
                param.total = total;
                param.message = message;
                Some(progress(param))
            }
            CallNote::Output { text, stream } => match &self.token {
                Some(token) if !self.has_own_progress => {
                    self.bytes += text.len() as f64;
                    let mut param = ProgressNotificationParam::new(token.clone(), self.bytes);
                    param.message = Some(text);
                    Some(progress(param))
                }
                _ => match self.filter {
                    MessageFilter::From(rank_wanted) if rank("info") >= rank_wanted => {
                        let data = json!({ "stream": stream, "text": text });
                        Some(message("info", &self.tool, &data))
                    }
                    _ => None,
                },
            },
            CallNote::Log {
                level,
                logger,
                data,
            } => {
                let level = LEVELS.get(rank(&level)).copied().unwrap_or("info");
                let logger = logger.as_deref().unwrap_or(&self.tool);
                accepts_level(level, self.filter).then(|| message(level, logger, &data))
            }
        }
    }
}

fn progress(param: ProgressNotificationParam) -> ServerNotification {
    rmcp::model::ProgressNotification::new(param).into()
}

/// `notifications/message`, written as JSON: the SDK's own type is marked as deprecated.
pub(super) fn message(level: &str, logger: &str, data: &Value) -> ServerNotification {
    let params = json!({ "level": level, "logger": logger, "data": data });
    CustomNotification::new("notifications/message", Some(params)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_output_become_notes_and_the_rest_does_not() {
        let event = |value: Value| CallNote::of(EmitKind::Event, value.to_string().as_bytes());
        assert_eq!(
            event(json!({ "event": "progress", "done": 1, "total": 4, "message": "m" })),
            Some(CallNote::Progress {
                done: 1.0,
                total: Some(4.0),
                message: Some("m".to_owned())
            })
        );
        assert_eq!(
            event(json!({ "event": "log", "level": "debug", "data": { "n": 1 } })),
            Some(CallNote::Log {
                level: "debug".to_owned(),
                logger: None,
                data: json!({ "n": 1 })
            })
        );
        assert_eq!(event(json!({ "event": "catalog_changed" })), None);
        assert_eq!(CallNote::of(EmitKind::Event, b"no JSON"), None);
        assert_eq!(
            CallNote::of(EmitKind::Stderr, b"out\xff"),
            Some(CallNote::Output {
                stream: "stderr",
                text: "out\u{fffd}".to_owned()
            })
        );
    }

    #[test]
    fn levels_are_in_order_and_an_unknown_one_is_info() {
        assert!(rank("debug") < rank("info") && rank("warning") < rank("error"));
        assert_eq!(rank("loud"), rank("info"));
    }
}
