//! The buffers that cross the ABI.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::abi::buffers(input));
