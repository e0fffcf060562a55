//! The domain of Conjure.
