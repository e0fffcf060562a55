//! A thread's file of JSON lines, as it is taken into a database.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| conjure_fuzz::transfer::thread_file(input));
