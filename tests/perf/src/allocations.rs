//! Counts the allocations of decoding recorded replies: one JSON object a wire on stdout.
//!
//! A program of its own, because it counts with an allocator of its own: what is timed runs with
//! the one that is shipped. Prints nothing where no recordings are.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use conjure_core::wire::Wire;
use conjure_core::wire::sse::SseDecoder;
use conjure_wire_tests::{VARIABLE, recorded};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

fn main() -> Result<()> {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) else {
        return Ok(());
    };
    for wire in Wire::ALL {
        let mut counts = Vec::new();
        for stream in recorded(folder.as_ref(), wire)?
            .iter()
            .filter(|r| r.streams())
        {
            let mut decoder = wire.decoder(&stream.endpoint());
            // As the host does: one list, emptied before each push.
            let mut events = Vec::with_capacity(64);
            for event in events_of(stream.exchange.reply()) {
                events.clear();
                let region = Region::new(COUNTED);
                decoder.push(event, &mut events);
                let change = region.change();
                counts.push(change.allocations + change.reallocations);
            }
            decoder.finish(&mut events);
        }
        let line = json!({"wire": wire, "counts": counts});
        writeln!(std::io::stdout().lock(), "{line}").context("cannot be told")?;
    }
    Ok(())
}

/// The bytes of each event, with the blank line that ends it.
fn events_of(body: &str) -> Vec<&[u8]> {
    let bytes = body.as_bytes();
    let mut finder = SseDecoder::default();
    let mut events = Vec::new();
    let mut begin = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let mut ended = false;
        // Recordings are small, so that an error cannot come.
        let _ = finder.for_each(&[*byte], |_, _| ended = true);
        if ended {
            events.extend(bytes.get(begin..=at));
            begin = at + 1;
        }
    }
    events
}
