//! A plugin that is a program, as one file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::host::program_bundle(input));
