//! A command through the local executor, against a bare spawn of the same command.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use conjure_host::plugin::{CallOptions, Instance, emit_channel};
use conjure_skill_sdk::protocol::{Bash, BashOutput, ExecutorInit, Request, op};
use serde::Serialize;

use super::on_runtime;
use crate::figure::{Figure, TIMES, short};
use crate::measured::PluginFixture;
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// How much longer than a bare spawn it may take.
const TARGET: f64 = 1.3;

const ROUNDS: usize = 600;
const WARM_UP: usize = 50;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.local()?.to_owned();
    on_runtime(async move {
        let place = PluginFixture::new()?;
        let instance = place.instance(&library).await?;
        let shell = Executor::new(&place, instance).await?;
        let mut figures = Vec::new();
        for (name, command) in [
            ("local_command", "echo hello"),
            ("local_command_program", "ls -l /etc && date"),
        ] {
            figures.push(shell.compare(name, command).await?);
        }
        Ok(figures)
    })
}

struct Executor {
    instance: Arc<Instance>,
    working_dir: std::path::PathBuf,
    exchange_dir: std::path::PathBuf,
}

impl Executor {
    async fn new(place: &PluginFixture, instance: Arc<Instance>) -> Result<Self> {
        let made = |name: &str| -> Result<_> {
            let dir = place.root.path().join(name);
            conjure_host::fs::create_private_dir(&dir)?;
            Ok(dir.canonicalize()?)
        };
        let executor = Self {
            instance,
            working_dir: made("work")?,
            exchange_dir: made("exchange")?,
        };
        let init = executor.request(ExecutorInit::default())?;
        executor
            .instance
            .request(op::EXECUTOR_INIT, init, CallOptions::default())
            .await?;
        Ok(executor)
    }

    async fn compare(&self, name: &str, command: &str) -> Result<Figure> {
        let (mut bare, mut through) = (Samples::default(), Samples::default());
        for round in 0..WARM_UP + ROUNDS {
            let begun = Instant::now();
            spawn(command, &self.working_dir)?;
            let floor = begun.elapsed();
            let begun = Instant::now();
            self.bash(command).await?;
            let took = begun.elapsed();
            if round >= WARM_UP {
                bare.push(us(floor));
                through.push(us(took));
            }
        }
        let ratio = through.median() / bare.median();
        let pairs = through.ratios_to(&bare);
        let method = format!(
            "`{command}` by executor.bash (configuration as it is by default, an empty working \
             directory, 16 KiB kept of each stream, an output channel) against std's Command for \
             `/bin/sh -c` with the same environment and both streams read, in turn; the ratio of \
             the medians."
        );
        let mut figure = Figure::new(name, TIMES, &pairs, &method).at_most(TARGET);
        figure.value = ratio;
        Ok(figure.note(format!(
            "{} µs against {} µs; the quick tenth of each: {} µs against {} µs, {} x.",
            short(through.median()),
            short(bare.median()),
            short(through.percentile(10)),
            short(bare.percentile(10)),
            short(through.percentile(10) / bare.percentile(10)),
        )))
    }

    async fn bash(&self, command: &str) -> Result<()> {
        let json = self.request(Bash {
            command: command.to_owned(),
            keep_bytes: Some(16 * 1024),
            ..Bash::default()
        })?;
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            sink: Some(sink),
            ..CallOptions::default()
        };
        let answer = self.instance.request(op::EXECUTOR_BASH, json, options);
        tokio::pin!(answer);
        let reply = loop {
            tokio::select! {
                biased;
                Some(_) = stream.next() => {}
                answer = &mut answer => break answer?,
            }
        };
        let output: BashOutput = serde_json::from_slice(&reply)?;
        anyhow::ensure!(
            output.exit_code == Some(0),
            "the command failed: {output:?}"
        );
        Ok(())
    }

    fn request<B: Serialize>(&self, body: B) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&Request {
            session: Some("perf".to_owned()),
            working_dir: Some(self.working_dir.display().to_string()),
            exchange_dir: Some(self.exchange_dir.display().to_string()),
            deadline_ms: 30_000,
            ..Request::new(body)
        })?)
    }
}

/// Runs the same command without anything around it.
fn spawn(command: &str, dir: &Path) -> Result<()> {
    let passed = ["PATH", "HOME", "LANG", "TERM", "USER", "SHELL"];
    let environment = passed
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let output = Command::new("/bin/sh")
        .args(["-c", "--", command])
        .current_dir(dir)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .output()
        .context("the shell could not be started")?;
    anyhow::ensure!(output.status.success(), "the command failed: {output:?}");
    Ok(())
}
