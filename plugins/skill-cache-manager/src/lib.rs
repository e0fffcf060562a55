//! A native skill that keeps a cache for a session.
