//! The framing of server-sent events.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::sse(input));
