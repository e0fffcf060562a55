//! The domain of Conjure.

pub mod context;
pub mod routing;
pub mod skill_folder;
