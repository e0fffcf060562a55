//! `conjure run` with one question: how long a person waits for an answer of 200 deltas, and what
//! that needs, also beside every plugin that comes with the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use conjure_mock_llm::{Message, MockLlm, Script, Step};
use tempfile::TempDir;

use crate::figure::{Figure, TIMES, short};
use crate::measured::status;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that it may take.
const TIME: f64 = 60.0;
/// MiB that it may need.
const MEMORY: f64 = 16.0;
/// How much more a run may take with every plugin beside it, by one without.
const PLUGINS_FACTOR: f64 = 1.3;

const ROUNDS: usize = 40;
const WARM_UP: usize = 5;
const MEMORY_ROUNDS: usize = 10;

const DELTAS: usize = 200;
/// Characters of a delta.
const DELTA: usize = 16;

/// What is run: the figure's name, the provider, its model, and whether the local executor is there.
const SHOTS: [(&str, &str, &str, bool); 3] = [
    (
        "one_shot_anthropic",
        "anthropic",
        "claude-sonnet-4-5",
        false,
    ),
    ("one_shot_openai", "openai", "gpt-5", false),
    ("one_shot_executor", "anthropic", "claude-sonnet-4-5", true),
];

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let answer = answer();
    let mock = model(&answer)?;
    let mut figures = Vec::new();
    for (name, provider, model, executor) in SHOTS {
        let shot = OneShot {
            program: shipped.program()?,
            provider,
            model,
            base_url: mock.base_url(),
            dir: prepare_dir(executor.then(|| shipped.local()).transpose()?)?,
            answer: &answer,
        };
        let mut times = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            let took = shot.timed()?;
            if round >= WARM_UP {
                times.push(ms(took));
            }
        }
        let memory: Samples = (0..MEMORY_ROUNDS)
            .map(|_| Ok(shot.peak_memory()? / 1024.0))
            .collect::<Result<_>>()?;
        let with = if executor {
            ", with the local executor"
        } else {
            ""
        };
        let method = format!(
            "From starting `conjure run --provider {provider}`{with} (release, stripped) to having \
             waited for its end: one request over HTTP to a server on loopback, an answer of \
             {DELTAS} deltas, a thread that is kept."
        );
        let memory_method = format!(
            "The most memory that such a run had at one time (VmHWM), read until its end; the \
             largest of {MEMORY_ROUNDS}."
        );
        let best = format!("The best: {} ms.", short(times.percentile(0)));
        let figure = Figure::new(name, "ms", &times, &method).at_most(TIME);
        figures.push(figure.note(best));
        let name = format!("{name}_memory");
        let most = Figure::single(&name, "MiB", memory.percentile(100), &memory_method);
        figures.push(most.at_most(MEMORY));
    }
    check_accepted(&mock)?;
    Ok(figures)
}

pub(super) fn run_beside_plugins(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let answer = answer();
    let mock = model(&answer)?;
    let shot = |plugins: &[PathBuf]| {
        Ok::<_, anyhow::Error>(OneShot {
            program: shipped.program()?,
            provider: "anthropic",
            model: "claude-sonnet-4-5",
            base_url: mock.base_url(),
            dir: prepare_dir(plugins.iter().map(PathBuf::as_path))?,
            answer: &answer,
        })
    };
    let (alone, beside) = (shot(&[])?, shot(shipped.bundled()?)?);
    let (mut times, mut memory) = (Samples::default(), Samples::default());
    // One after the other: what else the machine does is in both.
    for round in 0..WARM_UP + ROUNDS {
        let ratio = ms(beside.timed()?) / ms(alone.timed()?);
        if round >= WARM_UP {
            times.push(ratio);
        }
    }
    for _ in 0..MEMORY_ROUNDS {
        memory.push(beside.peak_memory()? / alone.peak_memory()?);
    }
    check_accepted(&mock)?;
    let of = "of `conjure run` with every plugin that comes with the program in the plugin \
              directory, by the same without any, in turns";
    let time = Figure::new(
        "one_shot_plugins",
        TIMES,
        &times,
        &format!("The time {of}."),
    );
    let memory = Figure::new(
        "one_shot_plugins_memory",
        TIMES,
        &memory,
        &format!("The most memory {of}."),
    );
    Ok(vec![
        time.at_most(PLUGINS_FACTOR),
        memory.at_most(PLUGINS_FACTOR),
    ])
}

fn answer() -> String {
    (0..DELTAS)
        .map(|number| format!("{number:>width$}\n", width = DELTA - 1))
        .collect()
}

/// A model that always gives this answer.
fn model(answer: &str) -> Result<MockLlm> {
    let message = Message::new().text(answer).deltas(DELTA);
    Ok(MockLlm::start_blocking(
        Script::new().step(Step::new(message).always()),
    )?)
}

fn check_accepted(mock: &MockLlm) -> Result<()> {
    anyhow::ensure!(
        mock.violations().is_empty(),
        "the provider would have refused {:?}",
        mock.violations()
    );
    Ok(())
}

struct OneShot<'a> {
    program: &'a Path,
    provider: &'a str,
    model: &'a str,
    base_url: String,
    dir: TempDir,
    answer: &'a str,
}

/// A home, a directory to work in and one for plugins.
fn prepare_dir<'a>(plugins: impl IntoIterator<Item = &'a Path>) -> Result<TempDir> {
    let place = tempfile::tempdir()?;
    for part in ["home", "work", "plugins"] {
        conjure_host::fs::create_private_dir(place.path().join(part))?;
    }
    for plugin in plugins {
        let name = plugin.file_name().context("a library has a name")?;
        std::fs::copy(plugin, place.path().join("plugins").join(name))?;
    }
    Ok(place)
}

impl OneShot<'_> {
    fn command(&self) -> Command {
        let place = self.dir.path();
        let mut command = Command::new(self.program);
        command
            .args(["run", "--provider", self.provider, "--model", self.model])
            .args(["--base-url", &self.base_url, "Count to 200."])
            .current_dir(place.join("work"))
            .env_clear()
            .env("HOME", place.join("home"))
            .env("CONJURE_PLUGIN_PATH", place.join("plugins"))
            .env("CONJURE_ISOLATION", "in-process")
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("ANTHROPIC_API_KEY", "a-key-of-nobody")
            .env("OPENAI_API_KEY", "a-key-of-nobody")
            .stdin(Stdio::null());
        command
    }

    fn timed(&self) -> Result<Duration> {
        let mut command = self.command();
        let begun = Instant::now();
        let output = command
            .output()
            .context("the program could not be started")?;
        let took = begun.elapsed();
        anyhow::ensure!(
            output.status.success() && output.stdout == self.answer.as_bytes(),
            "it did not answer as it should: {output:?}"
        );
        Ok(took)
    }

    /// KiB of its largest resident set. What `wait4` says would hold this process's size too.
    fn peak_memory(&self) -> Result<f64> {
        let mut child = self
            .command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("the program could not be started")?;
        let id = child.id().to_string();
        let mut peak: f64 = 0.0;
        // The field is gone with the process's memory, before the process itself.
        while let Ok(now) = status(&id, "VmHWM:") {
            peak = peak.max(now);
        }
        anyhow::ensure!(child.wait()?.success(), "it failed");
        Ok(peak)
    }
}
