//! Replies over the wire `openai-chat`.

#![no_main]

use conjure_core::wire::Wire;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::wire(Wire::OpenaiChat, input));
