//! An MCP bundle, of which the manifest is read.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::mcp_bundle(input));
