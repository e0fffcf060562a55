//! The plugin loader against real libraries.
