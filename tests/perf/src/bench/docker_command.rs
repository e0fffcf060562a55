//! A command in a session's container, warm, against `docker exec` of the same command.
//!
//! Needs an engine; where there is none this is left out and says so. Starting the container is
//! not part of the figure.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_host::plugin::NoServices;
use conjure_host::plugin_create;
use conjure_kit::{Engine, static_busybox};
use serde_json::json;

use super::executor_session::{ROUNDS, Session};
use super::on_runtime;
use crate::figure::{Figure, TIMES, short};
use crate::measured::PluginFixture;
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// Milliseconds that a command may take, and those of a `docker exec` on the machine for which that
/// was said.
const TARGET: f64 = 1.5;
const EXEC: f64 = 60.0;

/// How long a session is left alone before a call that finds all at rest: far less than a model
/// takes to ask for the next one.
const IDLE_TIME: Duration = Duration::from_millis(10);

/// Starts one process beside the shell.
const COMMAND: &str = "/bin/ls /; exit 0";

/// How many times `docker exec` is measured; it takes long.
const EXECS: usize = 20;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let Some(engine) = Engine::find()? else {
        return Ok(Vec::new());
    };
    let library = shipped.docker()?.to_owned();
    on_runtime(async move {
        let place = PluginFixture::new()?;
        let mut create = plugin_create(None);
        create.config = json!({ "image": engine.image() });
        create.data_dir = Some(place.root.path().join("data").display().to_string());
        let plugin = place.load(&library)?;
        let instance = plugin.create(&create, Arc::new(NoServices)).await?;
        let session = Session::new(&place, instance).await?;
        let measured = measure(&session, engine).await;
        session.end().await?;
        measured
    })
}

async fn measure(session: &Session, engine: Engine) -> Result<Vec<Figure>> {
    let samples = session.timed(COMMAND, None).await?;
    let rested = session.timed(COMMAND, Some(IDLE_TIME)).await?;
    let host = session.bash("cat /proc/sys/kernel/hostname").await?;
    let mut execs = Samples::default();
    for _ in 0..EXECS {
        let begun = Instant::now();
        exec(host.stdout.trim())?;
        execs.push(us(begun.elapsed()) / 1_000.0);
    }
    let busybox = static_busybox().context("there is no static busybox")?;
    let mut bare = Samples::default();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        run_bare(&busybox)?;
        bare.push(us(begun.elapsed()) / 1_000.0);
    }
    let method = format!(
        "`{COMMAND}` by executor.bash in a container of {} that runs already (configuration as \
             it is by default, an empty working directory, an output channel), one call straight after \
             the other; median.",
        engine.image()
    );
    let note = format!(
        "the quick tenth: {} ms; the same two processes outside any container, without us: {} \
             ms; `docker exec` of the same command: {} ms.",
        short(samples.percentile(10)),
        short(bare.median()),
        short(execs.median()),
    );
    let ratio = "The same, divided by a `docker exec` of the same command in the same \
                     container: the machine for which 1.5 ms were said does that in 60 ms.";
    let share = |samples: &Samples| samples.median() / execs.median();
    let at_rest = "The same, each call 10 ms after the one before, so that it finds all at rest.";
    Ok(vec![
        Figure::new("docker_command", "ms", &samples, &method)
            .at_most(TARGET)
            .note(note),
        Figure::single("docker_command_ratio", TIMES, share(&samples), ratio)
            .at_most(TARGET / EXEC),
        Figure::new("docker_command_rested", "ms", &rested, at_rest).at_most(TARGET),
        Figure::single("docker_command_rested_ratio", TIMES, share(&rested), ratio)
            .at_most(TARGET / EXEC),
    ])
}

/// Runs the same programs, started by nobody but this one: less than that no call can take.
fn run_bare(busybox: &str) -> Result<()> {
    let command = COMMAND.replace("/bin/", &format!("{busybox} "));
    let done = Command::new(busybox)
        .args(["sh", "-c", &command])
        .stdin(Stdio::null())
        .output()
        .context("busybox could not be started")?;
    ensure!(done.status.success(), "the command failed");
    Ok(())
}

/// Runs the same command without anything of ours.
fn exec(container: &str) -> Result<()> {
    let done = Command::new("docker")
        .args(["exec", container, "/bin/sh", "-c", COMMAND])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("`docker` could not be started")?;
    ensure!(done.success(), "`docker exec` failed");
    Ok(())
}
