//! A plugin's file that is complete: how soon every open session of a server has its tools.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::figure::Figure;
use crate::live_host::{LiveHost, SESSIONS};
use crate::measured::Versions;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that it may take.
const TARGET: f64 = 100.0;

const ROUNDS: u64 = 30;
const WARM_UP: u64 = 3;
/// A tool of the measured skill.
const TOOL: &str = "measured_execute";

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let versions = Versions::of(shipped.skill()?)?;
    let host = LiveHost::start(shipped.program()?)?;
    let there = host.workspace.plugins().join("libmeasured.so");
    let mut live = Samples::default();
    for number in 1..=WARM_UP + ROUNDS {
        // Bytes that no host has seen.
        let ready = complete(&host, &versions.number(number)?)?;
        let begun = Instant::now();
        std::fs::rename(ready, &there)?;
        host.wait_for_tool(TOOL, true)?;
        if number > WARM_UP {
            live.push(ms(begun.elapsed()));
        }
        if number == 1 || number == WARM_UP + ROUNDS {
            host.answers(TOOL)?;
        }
        std::fs::remove_file(&there)?;
        host.wait_for_tool(TOOL, false)?;
    }
    let method = format!(
        "From the rename of the measured skill, whose bytes are new each time, into the plugin \
         directory of `conjure serve` (release) to when its tools are in the next request of each \
         of {} open sessions, asked over HTTP all the while; the skill runs in a process of its \
         own. Each session called it after the first and the last round.",
        SESSIONS.len()
    );
    Ok(vec![
        Figure::new("file_live", "ms", &live, &method).at_most(TARGET),
    ])
}

/// A complete file beside the plugin directory, on the same file system.
fn complete(host: &LiveHost, bytes: &[u8]) -> Result<PathBuf> {
    let path = host.workspace.root().join("tmp/libmeasured.so");
    conjure_host::fs::write_atomic(&path, bytes)?;
    Ok(path)
}
