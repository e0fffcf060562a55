//! Everything that the model reads besides what people and tools say, made here and nowhere else,
//! so that a person can find it.
//!
//! Pure functions from settings and facts to text. What goes into a request, and in which order, is
//! decided in [`crate::request`].

mod call_failure;
mod command_words;
mod file_handles;
mod instructions;
mod memory;
mod missing_tool;
pub mod notes;
mod plugin_notes;
mod references;
pub mod result_lines;
mod results;
mod skill_paths;
pub mod skills_prompt;
mod summary;
mod working_dir;

pub use call_failure::{CallFailure, CallFailureKind, CallRefusal};
pub use command_words::quoted_word;
pub use file_handles::{
    FilePaths, handles_of_arguments, handles_of_command, with_argument_paths, with_command_paths,
};
pub use instructions::{BackendInstructions, instructions};
pub use memory::memory;
pub use missing_tool::no_such_tool;
pub use plugin_notes::plugin_note;
pub use references::{embedded_text, reference};
pub use results::{CommandEnd, cut, describe_file, file_line, file_line_start};
pub use skill_paths::{absolute_skill_path, absolute_skill_paths};
pub use skills_prompt::{SkillEntry, skills_prompt};
pub(crate) use summary::ASK_FOR_SUMMARY;
pub use working_dir::{changed_working_dir, working_dir};
