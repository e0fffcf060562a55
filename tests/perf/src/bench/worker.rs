//! A call in a worker process beside the same call inside the host, and the start of a worker.

use std::time::Instant;

use anyhow::Result;
use conjure_host::plugin::{Isolation, WorkerOptions};

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{PluginFixture, Session, call, instance};
use crate::samples::{Samples, ms, us};
use crate::shipped::BenchArtifacts;

/// Microseconds that a call in a worker may take longer, in the middle and at most in 99 of 100.
const TARGET: f64 = 30.0;
const TARGET_P99: f64 = 60.0;
/// Milliseconds from nothing to a worker's first answer.
const START: f64 = 20.0;

/// Calls before it is measured, and calls that are.
const WARM: usize = 2_000;
const CALLS: usize = 20_000;
const STARTS: usize = 100;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    let mut workers = WorkerOptions::new(shipped.program()?, &["plugin-host"]);
    workers.isolation = Isolation::Process;
    on_runtime(async move {
        let inside = Session::open(&library).await?;
        let outside = Session::open_with(&library, Some(workers.clone())).await?;
        let request = call("write");
        let (mut here, mut there) = (Samples::default(), Samples::default());
        // In turns, so that both have the same machine.
        for round in 0..WARM + CALLS {
            for (session, samples) in [(&inside, &mut here), (&outside, &mut there)] {
                let begun = Instant::now();
                session.call(&request).await?;
                if round >= WARM {
                    samples.push(us(begun.elapsed()));
                }
            }
        }
        let place = PluginFixture::with_workers(workers)?;
        let plugin = place.load(&library)?;
        let mut starts = Samples::default();
        for _ in 0..STARTS {
            let begun = Instant::now();
            let instance = instance(&plugin).await?;
            starts.push(ms(begun.elapsed()));
            drop(instance);
        }
        let over = [there.median() - here.median()].into_iter().collect();
        let over_p99 = [there.percentile(99) - here.percentile(99)]
            .into_iter()
            .collect();
        let method = "100 bytes to a skill that gives them back, in a confined worker process and on \
                      a thread of the plugin pool in turns, through Calls::call of two open \
                      sessions: ";
        let (median, p99) = (
            format!("{method}the difference of the medians."),
            format!("{method}the difference of the 99th percentiles."),
        );
        let note = format!("{:.1} µs against {:.1} µs", there.median(), here.median());
        let note_p99 = format!(
            "{:.1} µs against {:.1} µs",
            there.percentile(99),
            here.percentile(99)
        );
        Ok(vec![
            Figure::new("worker_call", "µs", &over, &median)
                .at_most(TARGET)
                .note(note),
            Figure::new("worker_call_p99", "µs", &over_p99, &p99)
                .at_most(TARGET_P99)
                .note(note_p99),
            Figure::new(
                "worker_start",
                "ms",
                &starts,
                "From LoadedPlugin::create to the first answer of an instance in a new worker: the \
                 process of the release program, its confinement, the library, create and ping.",
            )
            .at_most(START),
        ])
    })
}
