//! The boundary alone: into a library and back, with an operation that returns at once.

use std::hint::black_box;

use anyhow::Result;

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{NOTHING, measure_in_place};
use crate::samples::nanoseconds;
use crate::shipped::BenchArtifacts;

/// Batches that are measured.
const BATCHES: usize = 3_000;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let samples = measure_in_place(&library, NOTHING, BATCHES, |instance| {
            nanoseconds(BATCHES, 1_000, || {
                let reply = black_box(instance).request_in_place(NOTHING, b"{}");
                black_box(reply).is_some_and(|reply| reply.is_ok())
            })
        })
        .await?;
        let method = "Instance::request_in_place into a real library whose operation returns at once, \
                      before any code of the SDK and without bytes: the host's guards, its \
                      context object and the call through the ABI's object; medians of batches \
                      of 1,000.";
        Ok(vec![
            Figure::new("boundary", "ns", &samples, method).at_most(60.0),
        ])
    })
}
