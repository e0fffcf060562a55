//! Tests through the real interface, with real servers.
//!
//! Names that begin with `trap` and a number are the traps of `conjure-host/docs/mcp.md`.

mod asking;
mod basics;
mod endings;
mod eras;
mod http;
mod modes;
mod stage;
mod traps;
