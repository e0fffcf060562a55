//! An ordinary native call, on a thread of its own, from tool call to result.

use std::time::Instant;

use anyhow::Result;

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{Session, call};
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// Microseconds that an ordinary call may take.
const TARGET: f64 = 25.0;

/// Calls before it is measured, and calls that are.
const WARM: usize = 3_000;
const CALLS: usize = 30_000;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let session = Session::open(&library).await?;
        let request = call("write");
        let mut samples = Samples::default();
        for round in 0..WARM + CALLS {
            let begun = Instant::now();
            session.call(&request).await?;
            if round >= WARM {
                samples.push(us(begun.elapsed()));
            }
        }
        let method = "100 bytes to a skill that gives them back, on a thread of the plugin pool, \
                      through Calls::call of an open session, from a task of a multi-threaded \
                      runtime.";
        Ok(vec![
            Figure::new("ordinary", "µs", &samples, method).at_most(TARGET),
        ])
    })
}
