//! The conversation: a session's threads, what was said and done in them, and what happens now.

mod code;
mod markdown;
