//! Looking a public name up in a large routing table.

use std::hint::black_box;

use anyhow::Result;
use conjure_core::routing::{Naming, RoutingTable};

use super::routing_build::{TOOLS, catalogs};
use crate::figure::{Figure, short};
use crate::samples::nanoseconds;
use crate::shipped::BenchArtifacts;

/// Nanoseconds that a look-up may take.
const TARGET: f64 = 200.0;

pub(super) fn run(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let table = RoutingTable::build(1, &catalogs(), &Naming::default())?;
    let mut names: Vec<String> = table.routes().iter().map(|r| r.name.to_string()).collect();
    shuffle(&mut names);
    let mut next = names.iter().cycle();
    let samples = nanoseconds(2_000, 500, || {
        let name = next.next().map_or("", String::as_str);
        black_box(table.route(black_box(name))).is_some()
    });
    let mut one = names.iter().take(1).cycle();
    let warm = nanoseconds(2_000, 500, || {
        let name = one.next().map_or("", String::as_str);
        black_box(table.route(black_box(name))).is_some()
    });
    anyhow::ensure!(
        samples.len() == 2_000 && names.len() == TOOLS,
        "names were not found"
    );
    let method = "RoutingTable::route for all 10,000 names in an order without a pattern, medians \
                  of batches of 500.";
    Ok(vec![
        Figure::new("routing_lookup", "ns", &samples, method)
            .at_most(TARGET)
            .note(format!(
                "One name again and again: {} ns.",
                short(warm.median())
            )),
    ])
}

/// Mixes names, the same way every time.
fn shuffle(names: &mut [String]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..names.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (at as u64 + 1)).unwrap_or(0);
        names.swap(at, other);
    }
}
