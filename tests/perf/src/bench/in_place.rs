//! A native call in place, from tool call to result.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::measured::{EXECUTE, Session, call, measure_in_place, request};
use crate::samples::{Samples, nanoseconds, us};
use crate::shipped::BenchArtifacts;

/// Microseconds that a call in place may take.
const TARGET: f64 = 1.0;

/// Hosts, one after the other: a busy machine takes the permission back from some.
const HOSTS: usize = 10;
/// Calls of each before it is measured; at least a hundred ordinary ones earn the way.
const WARM: usize = 50_000;
/// Batches of each that are measured.
const BATCHES: usize = 1_000;
/// Calls in a batch: a clock reading costs a part of one.
const BATCH: u32 = 100;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let skill = shipped.skill()?.to_owned();
    on_runtime(async move {
        let whole = time_whole_call(&skill).await?;
        let library = library(skill).await?;
        let method = "A 100-byte command to a skill that gives it back, through Calls::call of an \
                      open session: look-up in the table, JSON out and in, the library with its \
                      SDK's JSON in and out, the call's report; after 50,000 calls, medians of \
                      batches of 100 on 10 hosts.";
        let note = format!(
            "Inside Instance::request_in_place, so in the library with its JSON, a call of the \
             same size takes {} µs.",
            short(library.median())
        );
        Ok(vec![
            Figure::new("in_place", "µs", &whole, method)
                .at_most(TARGET)
                .note(note),
        ])
    })
}

/// Microseconds of the whole call.
async fn time_whole_call(library: &Path) -> Result<Samples> {
    let call = call("execute");
    let mut samples = Samples::default();
    for _ in 0..HOSTS {
        let session = Session::open(library).await?;
        for _ in 0..WARM {
            session.call(&call).await?;
        }
        for _ in 0..BATCHES {
            let begun = Instant::now();
            for _ in 0..BATCH {
                session.call(black_box(&call)).await?;
            }
            samples.push(us(begun.elapsed()) / f64::from(BATCH));
        }
    }
    Ok(samples)
}

/// Microseconds of the part in the library.
async fn library(library: PathBuf) -> Result<Samples> {
    let json = request(&call("execute"))?;
    let samples = measure_in_place(&library, EXECUTE, HOSTS * BATCHES, |instance| {
        nanoseconds(HOSTS * BATCHES, BATCH, || {
            let reply = instance.request_in_place(EXECUTE, black_box(&json));
            black_box(reply).is_some_and(|reply| reply.is_ok())
        })
    });
    Ok(samples.await?.scaled(1e-3))
}
