//! A native call in place, from tool call to result.

use std::hint::black_box;
use std::path::PathBuf;

use anyhow::Result;
use conjure_host::Host;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::measured::{Caller, EXECUTE, call, in_place};
use crate::samples::{Samples, nanoseconds, us};
use crate::shipped::Shipped;

/// Microseconds that a call in place may take.
const TARGET: f64 = 1.0;

/// Batches that are measured.
const BATCHES: usize = 2_000;

pub(super) fn run(shipped: &Shipped) -> Result<Vec<Figure>> {
    let (skill, fast) = (
        shipped.skill()?.to_owned(),
        shipped.fast_skill()?.to_owned(),
    );
    on_runtime(async move {
        let (whole, plugin) = warm(skill.clone()).await?;
        let (whole_fast, plugin_fast) = warm(fast).await?;
        let method = "A 100-byte command to a skill that gives it back: look-up in the table, \
                      envelope, JSON out and in, Instance::request_in_place after 100 ordinary \
                      calls, the SDK's JSON in and out, the call's output; the runner's steps \
                      with the runner's types; medians of batches of 100.";
        let note = |plugin: &Samples| {
            format!(
                "Of it {} µs are inside Instance::request_in_place, so in the library with its \
                 JSON; the rest is the host's.",
                short(plugin.median())
            )
        };
        let fast_method = "As in_place, with the library built with opt-level 3 instead of the \
                           template's \"s\".";
        Ok(vec![
            Figure::new("in_place", "µs", &whole, method)
                .at_most(TARGET)
                .note(note(&plugin)),
            Figure::new("in_place_fast", "µs", &whole_fast, fast_method)
                .at_most(TARGET)
                .note(note(&plugin_fast)),
            through_host(skill).await?,
        ])
    })
}

/// Microseconds of the whole call, and of the part in the library, with warm caches.
async fn warm(library: PathBuf) -> Result<(Samples, Samples)> {
    let call = call("execute");
    let whole = in_place(&library, EXECUTE, BATCHES, |place, instance| {
        let caller = Caller::new(place, &instance)?;
        Ok(nanoseconds(BATCHES, 100, || {
            let output = caller.in_place(black_box(&call));
            black_box(output).is_some_and(|output| output.is_ok_and(|o| o.output.len() == 1))
        }))
    });
    let whole = whole.await?;
    let plugin = in_place(&library, EXECUTE, BATCHES, |place, instance| {
        let json = Caller::new(place, &instance)?.json(&call)?;
        Ok(nanoseconds(BATCHES, 100, || {
            let reply = instance.request_in_place(EXECUTE, black_box(&json));
            black_box(reply).is_some_and(|reply| reply.is_ok())
        }))
    });
    Ok((whole.scaled(1e-3), plugin.await?.scaled(1e-3)))
}

/// What the host itself says of calls that each open a session of their own.
async fn through_host(library: PathBuf) -> Result<Figure> {
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .plugin_file(&library)
        .build()
        .await?;
    let mut samples = Samples::default();
    for round in 0..1_000 {
        let report = host.execute(call("execute"), &[], None).await?;
        anyhow::ensure!(!report.output.is_error, "the skill answered {report:?}");
        // By then a hundred ordinary ones earned it, also on a busy machine.
        if round >= 600 {
            samples.push(us(report.duration));
        }
    }
    let method = "What Host::execute reports as the call's duration (its own runner), each call \
                  once in a session that was opened for it, so with caches as cold as that leaves \
                  them; after 600 calls.";
    Ok(Figure::new("in_place_host", "µs", &samples, method))
}
