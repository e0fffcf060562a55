//! A PDF that a model is to read: whether it is encrypted.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::pdf(input));
