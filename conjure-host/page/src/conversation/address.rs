//! Where in the page a conversation is: the addresses of a session, of a thread, and of what can be
//! done there.

use std::collections::HashMap;
use std::sync::Arc;

use conjure_runtime::manager::SessionView;
use conjure_store::ThreadId;

use crate::client::segment;

/// A session, and the thread that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationAddress {
    /// The session's id.
    pub(crate) session: String,
    /// What the session is called: its name, else its id.
    pub(crate) name: String,
    pub(crate) thread: Option<ThreadId>,
    /// What a file that is shared holds in place of addresses; nothing in a page.
    pub(crate) shared: Option<Arc<SharedPictures>>,
}

/// The pictures of a thread that is shared as a file: the address of each, with its bytes in it, by
/// the file's id.
pub(crate) type SharedPictures = HashMap<String, String>;

impl ConversationAddress {
    pub(crate) fn of(session: &SessionView, thread: Option<ThreadId>) -> Self {
        Self {
            session: session.id.clone(),
            name: session.name.clone().unwrap_or_else(|| session.id.clone()),
            thread,
            shared: None,
        }
    }

    /// Whether it is shown in a file, where nothing can be done.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Something of the session, such as `say`.
    pub(crate) fn of_session(&self, what: &str) -> String {
        let session = segment(&self.name);
        match what {
            "" => format!("/sessions/{session}"),
            what => format!("/sessions/{session}/{what}"),
        }
    }

    /// The session with a thread.
    pub(crate) fn with_thread(&self, thread: &ThreadId) -> String {
        self.of_session(&format!("threads/{thread}"))
    }

    /// Something of the thread, such as `rename`.
    pub(crate) fn of_thread(&self, what: &str) -> String {
        let thread = self.thread.as_ref().map(ToString::to_string);
        let thread = thread.unwrap_or_default();
        self.of_session(&format!("threads/{thread}/{what}"))
    }

    /// The bytes of a file of the thread.
    pub(crate) fn file(&self, file: &str) -> String {
        let thread = self.thread.as_ref().map(ToString::to_string);
        let session = segment(&self.session);
        format!(
            "/api/v1/threads/{}/files/{}/content?session={session}",
            thread.unwrap_or_default(),
            segment(file)
        )
    }
}

/// The id of what the model thought in a reply of a turn, the first being 1: the same while it comes
/// and when it is settled.
pub(crate) fn thought_id(turn: &str, reply: usize) -> String {
    element_id("thought", &format!("{turn}-{reply}"))
}

/// An id of an element for something that somebody else named.
pub(crate) fn element_id(kind: &str, name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if (1..=64).contains(&name.len()) && name.bytes().all(is_plain) {
        return format!("{kind}-{name}");
    }
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(name.as_bytes());
    let hash: String = hash.iter().take(12).map(|b| format!("{b:02x}")).collect();
    format!("{kind}-x{hash}")
}
