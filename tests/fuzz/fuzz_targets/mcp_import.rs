//! The configuration of MCP servers of another program.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::mcp_import(input));
