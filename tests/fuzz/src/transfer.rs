//! A thread's file as a database takes it in, by the store's own sources: the store itself takes minutes
//! to build instrumented.

use conjure_core::chat::{Event, EventId};
use conjure_core::log::Entry;
use serde::Deserialize;

#[path = "../../../conjure-host/store/src/transfer/sequence.rs"]
mod sequence;
#[path = "../../../conjure-host/store/src/transfer/thread_file.rs"]
mod thread_file;

use thread_file::{CutLine, read_records};

/// A record of a thread, as the store has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    Entry(Entry),
    Event { id: EventId, event: Event },
    Opened { epoch: u64 },
}

/// A file is records in their order or is refused with a line of it. Read as what a crash left, one that
/// is whole lacks nothing but a last line without its end.
pub fn thread_file(input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n').count();
    let begun = read_records(input, CutLine::Skip);
    match read_records(input, CutLine::Refuse) {
        Ok(whole) => {
            assert!(whole.len() <= lines, "more records than lines");
            let begun = begun.expect("whole, and refused without its last line");
            match input.ends_with(b"\n") {
                true => assert_eq!(begun, whole, "no last line is cut"),
                false => assert!(
                    whole.starts_with(&begun) && whole.len() - begun.len() <= 1,
                    "more than the last line is left out"
                ),
            }
        }
        Err(damaged) => assert!(
            (1..=lines).contains(&damaged.line) && !damaged.reason.is_empty(),
            "refused without a reason: {damaged:?}"
        ),
    }
}
