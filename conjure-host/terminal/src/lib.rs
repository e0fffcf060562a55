//! A conversation at a terminal.

pub mod editor;
mod highlight;
pub mod history;
pub mod markdown;
pub mod screen;
pub mod stream;
mod table;
pub mod text;
mod words;
