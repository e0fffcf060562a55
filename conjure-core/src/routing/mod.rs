//! From a tool's public name to whoever runs it.
//!
//! Knows nothing about how a call is executed.

mod name;

pub use name::{MAX_TOOL_NAME, ToolName, ToolNameError};
