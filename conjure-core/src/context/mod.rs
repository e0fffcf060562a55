//! Everything that the model reads besides what people and tools say: instructions, the words
//! around results. Made here and nowhere else, so that a person can find it.

mod results;
mod skill_paths;
mod skills_prompt;

pub use results::{CommandEnd, cut, failure, file_line};
pub use skill_paths::absolute_skill_paths;
pub use skills_prompt::{SkillEntry, skills_prompt};
