//! The domain of Conjure.

pub mod routing;
pub mod skill_folder;
