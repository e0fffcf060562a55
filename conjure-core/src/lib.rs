//! The domain of Conjure.

pub mod routing;
