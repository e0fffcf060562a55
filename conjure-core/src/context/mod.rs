//! Everything that the model reads besides what people and tools say, made here and nowhere else,
//! so that a person can find it.
//!
//! Pure functions from logs, settings and tables to text and requests. Sends nothing and stores
//! nothing.

mod call_failure;
mod command_words;
pub mod compile;
mod conversation;
mod estimate;
mod file_handles;
mod fit;
mod instructions;
mod memory;
pub mod notes;
#[cfg(test)]
mod prefix_tests;
mod results;
mod room;
mod size;
mod skill_paths;
pub mod skills_prompt;
mod summary;

pub use call_failure::{CallFailure, CallFailureKind};
pub use compile::{CompileSettings, compile};
pub use conversation::conversation;
pub use estimate::{request_tokens, text_tokens};
pub use file_handles::{
    FilePaths, handles_of_arguments, handles_of_command, with_argument_paths, with_command_paths,
};
pub use instructions::{BackendInstructions, instructions};
pub use memory::memory;
pub use results::{CommandEnd, cut, file_line};
pub use room::{Room, cut_point};
pub(crate) use size::counted;
pub use size::{entry_tokens, message_tokens, next_input_tokens, tool_tokens, view_tokens};
pub use skill_paths::{absolute_skill_path, absolute_skill_paths};
pub use skills_prompt::{SkillEntry, skills_prompt};
pub use summary::summary_request;
