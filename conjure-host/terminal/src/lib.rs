//! A conversation at a terminal: what is said, rendered as it comes, and what is typed meanwhile.
//!
//! What is finished goes to the terminal's own scrollback once; a region below it is redrawn. The
//! face knows events, keys and lines, and nothing of sessions or models: it asks for what the person
//! wants with a [`PersonRequest`] and is told with an [`Update`]. Begin at [`converse`]; `screen` writes,
//! `turn_lines` makes lines of events, `editor` is what is typed. A leaf: only the command line
//! depends on it. Why there is no library for it: `conjure-core/docs/adr/0009-a-region-of-our-own.md`.

mod approval;
mod approval_dialog;
mod attaching;
mod attachments;
mod call;
mod completion;
mod conversation;
mod diff;
mod directory_entries;
mod editor;
mod ended_call;
mod external;
mod face;
mod file_index;
mod flushed;
mod form_keys;
mod frame;
mod highlight;
mod history;
mod history_lines;
mod ignore_rules;
mod image;
mod keys;
mod kill_buffer;
mod lending;
mod line_break;
mod live_calls;
mod markdown;
mod message_queue;
mod notes;
mod numerals;
mod offers;
mod pasted;
mod pending_image;
mod pick;
mod picker;
mod prompt_queue;
mod prompts;
mod question;
mod queue_keys;
mod recent_calls;
mod screen;
mod status;
mod stream;
mod table;
mod text;
mod text_layout;
mod thoughts;
mod transcript;
mod turn_lines;
mod turn_screen;

pub use approval_dialog::{ApprovalLines, LineAnswer, decide};
pub use call::summary;
pub use completion::Command;
pub use conversation::{
    ConversationStatus, Decision, OthersPrompt, PastCallEnd, PastItem, PersonRequest, Update,
};
pub use face::{FRAME, FaceOptions, converse};
pub use history::InputHistory;
pub use image::ImageProtocol;
pub use pick::pick;
pub use picker::{Picker, PickerItem};
pub use question::{DECLINE, FieldAnswer, FormField, yes_or_no};
pub use turn_screen::TurnScreen;
