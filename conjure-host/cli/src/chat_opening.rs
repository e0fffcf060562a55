//! A chat whose session is opened while its face is there already: a long thread takes a moment to be
//! read, and meanwhile its last words are seen and the next ones can be typed.

use std::path::PathBuf;

use conjure_runtime::Host;
use conjure_terminal::{PersonRequest, Update};
use tokio::sync::mpsc;

use super::chat_session::{ChatSession, PreparedChat, directory_of};
use super::error::CliError;
use super::past_turns;
use super::person;
use super::signals::{Signal, Signals};

/// What a face is to show.
pub(crate) enum ChatToShow {
    /// A chat.
    Open(ChatSession),
    /// One whose session is opened meanwhile.
    Unopened(Box<PreparedChat>),
}

impl ChatToShow {
    pub(crate) async fn directory(&self) -> Result<PathBuf, CliError> {
        match self {
            Self::Open(chat) => chat.directory().await,
            Self::Unopened(prepared) => directory_of(&prepared.spec),
        }
    }

    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Open(chat) => chat.host(),
            Self::Unopened(prepared) => &prepared.host,
        }
    }

    /// The chat, where there is one.
    pub(crate) fn into_open(self) -> Option<ChatSession> {
        match self {
            Self::Open(chat) => Some(chat),
            Self::Unopened(_) => None,
        }
    }
}

/// Result of opening a chat.
pub(crate) enum OpeningEnd {
    /// The chat is open.
    Open(OpenedChat),
    /// The chat was left before it was open: by the person, or with a signal.
    Cancelled(Option<Signal>),
}

/// A chat that is open, and what happened meanwhile.
pub(crate) struct OpenedChat {
    pub(crate) chat: ChatSession,
    /// Whether something was said in it, the last of which is shown already.
    pub(crate) is_shown: bool,
    /// What the person wants done; a face asks for one thing at a time.
    pub(crate) pending_request: Option<PersonRequest>,
}

impl OpenedChat {
    /// One that was open before.
    pub(crate) fn of(chat: ChatSession) -> Self {
        Self {
            chat,
            is_shown: false,
            pending_request: None,
        }
    }
}

/// Opens a chat that has a face.
///
/// # Errors
/// Why it cannot be opened.
pub(crate) async fn open(
    prepared: PreparedChat,
    face: &mpsc::Sender<Update>,
    requests: &mut mpsc::Receiver<PersonRequest>,
    signals: &mut Signals,
) -> Result<OpeningEnd, CliError> {
    let is_shown = show_before(&prepared, face).await?;
    let mut wanted = None;
    let mut opening = Box::pin(prepared.open());
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(OpeningEnd::Cancelled(Some(signal))),
            opened = &mut opening => {
                let chat = ChatSession::Own(Box::new(opened?));
                return Ok(OpeningEnd::Open(OpenedChat { chat, is_shown, pending_request: wanted }));
            }
            request = requests.recv() => match request {
                None => return Ok(OpeningEnd::Cancelled(None)),
                // A plugin may ask while it is loaded.
                Some(PersonRequest::Answer { id, content }) => {
                    person::answer_in_face(&id, content);
                }
                Some(PersonRequest::Stop) => {
                    wanted = None;
                    // A face that is gone is told by its closed channel.
                    let _ = face.send(Update::Ready).await;
                }
                Some(request) => wanted = Some(request),
            },
        }
    }
}

/// Shows the last of what was said, where opening the thread does not change it; whether something is
/// shown.
async fn show_before(
    prepared: &PreparedChat,
    face: &mpsc::Sender<Update>,
) -> Result<bool, CliError> {
    let Some(thread) = &prepared.thread else {
        return Ok(false);
    };
    let Some(said) = past_turns::recent_items_if_settled(&prepared.store, thread).await? else {
        return Ok(false);
    };
    let has_said = !said.is_empty();
    if has_said {
        let _ = face.send(Update::History(said)).await;
    }
    Ok(has_said)
}
