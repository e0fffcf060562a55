//! A piece of a turn that runs: a text, a thought, a call, a question, with how much of it is in the
//! page, and what brings the page up to date.

use conjure_core::chat::{ArtifactRef, QuestionAsked};
use conjure_core::foreign_text::clean;
use maud::{Markup, html};

use super::address::{ConversationAddress, element_id};
use super::card;
use super::live_text::LiveText;
use super::model::{CallCard, CallProgress};
use super::question;
use super::render;
use crate::respond::{Swap, piece};

/// Where the pieces of the turn are in the page.
const ITEMS: &str = "live-items";

/// A piece, with how much of it is in the page.
#[derive(Debug)]
pub(super) struct LiveItem {
    pub(super) content: LiveContent,
    is_sent: bool,
    pub(super) is_changed: bool,
}

/// What it shows.
#[derive(Debug)]
pub(super) enum LiveContent {
    Text(LiveText),
    Thought {
        /// Id of the thought's element.
        id: String,
        text: String,
        sent: usize,
        is_over: bool,
    },
    Call {
        call: Box<CallCard>,
        /// How much of what it says is in the page.
        sent: usize,
        /// More than that is another one.
        is_otherwise: bool,
    },
    Question {
        question: Box<QuestionAsked>,
        outcome: Option<String>,
    },
    File(ArtifactRef),
    Notice(String),
    Error {
        kind: String,
        text: String,
    },
}

impl LiveItem {
    pub(super) fn new(shown: LiveContent) -> Self {
        Self {
            content: shown,
            is_sent: false,
            is_changed: true,
        }
    }

    /// Whether it is a call that ended of which the events do not say how.
    pub(super) fn lacks_end(&self) -> bool {
        match &self.content {
            LiveContent::Call { call, .. } => {
                let is_over = matches!(call.state, CallProgress::Over(_));
                is_over && call.is_error && call.ended_seq.is_none()
            }
            _ => false,
        }
    }

    /// All of it will be in the page.
    pub(super) fn settle(&mut self) {
        self.is_sent = true;
        self.is_changed = false;
        match &mut self.content {
            LiveContent::Text(text) => {
                text.settle();
            }
            LiveContent::Thought { text, sent, .. } => *sent = text.len(),
            LiveContent::Call {
                call,
                sent,
                is_otherwise,
            } => {
                *sent = call.live.len();
                *is_otherwise = false;
            }
            _ => {}
        }
    }

    /// All of it, at this place of the turn.
    pub(super) fn markup(&self, address: &ConversationAddress, at: usize) -> Markup {
        match &self.content {
            LiveContent::Text(text) => text.markup(at),
            LiveContent::Thought {
                id, text, is_over, ..
            } => render::reasoning(id, text, !is_over),
            LiveContent::Call { call, .. } => card::call(address, call),
            LiveContent::Question {
                question: asked,
                outcome: None,
            } => question::form(address, asked),
            LiveContent::Question {
                question: asked,
                outcome: Some(action),
            } => question::outcome(&asked.id, action),
            LiveContent::File(file) => html! {
                div.entry.loose { (card::files(address, &format!("live-{at}"), std::slice::from_ref(file))) }
            },
            LiveContent::Notice(text) => render::notice(text),
            LiveContent::Error { kind, text } => render::error(kind, text),
        }
    }

    /// What brings the page up to date, where something of it changed since that.
    pub(super) fn update(
        &mut self,
        address: &ConversationAddress,
        at: usize,
        pieces: &mut Vec<Markup>,
    ) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        if self.is_sent {
            self.difference(address, at, pieces);
        } else {
            self.settle();
            pieces.push(piece(Swap::Append, ITEMS, &self.markup(address, at)));
        }
    }

    fn difference(&mut self, address: &ConversationAddress, at: usize, pieces: &mut Vec<Markup>) {
        match &mut self.content {
            LiveContent::Text(text) => {
                text.difference(at, pieces);
            }
            LiveContent::Thought {
                id,
                text,
                sent,
                is_over,
            } => {
                let new = text.get(*sent..).unwrap_or_default();
                if !new.is_empty() {
                    let new = html! { (clean(new)) };
                    pieces.push(piece(Swap::Append, &format!("{id}-text"), &new));
                    *sent = text.len();
                }
                if *is_over {
                    let whole = render::reasoning(id, text, false);
                    pieces.push(piece(Swap::Outer, id, &whole));
                }
            }
            LiveContent::Call {
                call,
                sent,
                is_otherwise,
            } => {
                let id = element_id("call", &call.id);
                if std::mem::take(is_otherwise) {
                    *sent = call.live.len();
                    pieces.push(piece(Swap::Outer, &id, &card::call(address, call)));
                } else {
                    let new = call.live.get(*sent..).unwrap_or_default();
                    let new = html! { (clean(new)) };
                    pieces.push(piece(Swap::Append, &format!("{id}-live"), &new));
                    *sent = call.live.len();
                }
            }
            LiveContent::Question {
                question: asked,
                outcome: over,
            } => {
                let id = element_id("question", &asked.id);
                let shown = match over {
                    Some(action) => question::outcome(&asked.id, action),
                    None => question::form(address, asked),
                };
                pieces.push(piece(Swap::Outer, &id, &shown));
            }
            LiveContent::File(_) | LiveContent::Notice(_) | LiveContent::Error { .. } => {}
        }
    }
}
