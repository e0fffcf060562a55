//! An ordinary native call, on a thread of its own, from tool call to result.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use conjure_host::Host;

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::{Caller, Place, call};
use crate::samples::{Samples, us};
use crate::shipped::Shipped;

/// Microseconds that an ordinary call may take.
const TARGET: f64 = 25.0;

pub(super) fn run(shipped: &Shipped) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let place = Place::new()?;
        let instance = place.instance(&library).await?;
        let caller = Caller::new(&place, &instance)?;
        let request = call("write");
        let mut samples = Samples::default();
        for round in 0..33_000 {
            let begun = Instant::now();
            caller.ordinary(&request).await?;
            if round >= 3_000 {
                samples.push(us(begun.elapsed()));
            }
        }
        let method = "100 bytes to a skill that gives them back, on a thread of the plugin pool: \
                      look-up, envelope, JSON, Instance::request with an output channel from a \
                      task of a multi-threaded runtime, JSON, the call's output; the runner's \
                      steps with the runner's types.";
        let host = through_host(&library).await?;
        Ok(vec![
            Figure::new("ordinary", "µs", &samples, method).at_most(TARGET),
            host,
        ])
    })
}

/// What the host itself says of calls that each open a session of their own.
async fn through_host(library: &Path) -> Result<Figure> {
    let data = tempfile::tempdir()?;
    let host = Host::builder()
        .data_dir(data.path())
        .plugin_file(library)
        .build()
        .await?;
    let mut samples = Samples::default();
    let mut sessions = Samples::default();
    for round in 0..1_000 {
        let begun = Instant::now();
        let report = host.execute(call("write"), &[], None).await?;
        let whole = begun.elapsed();
        anyhow::ensure!(!report.output.is_error, "the skill answered {report:?}");
        if round >= 100 {
            samples.push(us(report.duration));
            sessions.push(us(whole));
        }
    }
    let method = "What Host::execute reports as the call's duration (its own runner), each call \
                  once in a session that was opened for it.";
    let note = format!(
        "With opening and closing the session: {:.0} µs.",
        sessions.median()
    );
    Ok(Figure::new("ordinary_host", "µs", &samples, method).note(note))
}
