//! Everything that the model reads is made here, so that a person can find it.
//!
//! Pure functions from settings and tables to text. Sends nothing and stores nothing.

pub mod compile;
pub mod notes;
pub mod skills_prompt;

pub use compile::{CompileSettings, compile};
pub use skills_prompt::{SkillEntry, skills_prompt};
