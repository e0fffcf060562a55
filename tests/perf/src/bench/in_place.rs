//! A native call in place, from tool call to result.

use std::hint::black_box;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use conjure_host::Host;

use super::on_runtime;
use crate::figure::{Figure, short};
use crate::measured::{Caller, EXECUTE, Place, call, earn};
use crate::samples::{Samples, nanoseconds, us};
use crate::shipped::Shipped;

/// Microseconds that a call in place may take.
const TARGET: f64 = 1.0;

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
    let place = Place::new()?;
    let instance = place.instance(&library).await?;
    earn(&instance, EXECUTE).await?;
    let caller = Caller::new(&place, &instance)?;
    let call = call("execute");
    let first = caller.in_place(&call).context("it is not in place")??;
    anyhow::ensure!(
        first.joined_text().len() == 100,
        "the skill answered {first:?}"
    );
    let mut lost = 0_u32;
    let whole = nanoseconds(3_000, 100, || {
        let output = caller.in_place(black_box(&call));
        lost += u32::from(black_box(output).is_none_or(|output| output.is_err()));
    });
    let json = caller.json(&call)?;
    let plugin = nanoseconds(3_000, 100, || {
        let reply = instance.request_in_place(EXECUTE, black_box(&json));
        lost += u32::from(black_box(reply).is_none_or(|reply| reply.is_err()));
    });
    anyhow::ensure!(lost == 0, "{lost} calls were not made in place");
    Ok((whole.scaled(1e-3), plugin.scaled(1e-3)))
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
