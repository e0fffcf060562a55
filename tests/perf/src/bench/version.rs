//! `conjure --version`: how long the program takes to start, and what it needs.

use std::io::{ErrorKind, PipeWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::figure::{Figure, short};
use crate::measured::status;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that it may take.
const TIME: f64 = 5.0;
/// MiB that it may need.
const MEMORY: f64 = 12.0;

const ROUNDS: usize = 400;
const WARM_UP: usize = 20;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let program = shipped.program()?;
    let (mut times, mut floor) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + ROUNDS {
        let own = time_once(Command::new(program).arg("--version"))?;
        let least = time_once(&mut Command::new("/bin/true"))?;
        if round >= WARM_UP {
            times.push(ms(own));
            floor.push(ms(least));
        }
    }
    let mut memory = Samples::default();
    for _ in 0..5 {
        memory.push(peak_memory(program)? / 1024.0);
    }
    let size = std::fs::metadata(program)?.len() as f64 / (1024.0 * 1024.0);
    let method = "From starting `conjure --version` (release, stripped) to having waited for its \
                  end, its output dropped.";
    let memory_method = "The most memory it had at one time (VmHWM), read when it has done \
                         everything and waits for its output to be taken.";
    Ok(vec![
        Figure::new("version", "ms", &times, method)
            .at_most(TIME)
            .note(format!(
                "`/bin/true`, in turn with it: {} ms.",
                short(floor.median())
            )),
        Figure::new("version_memory", "MiB", &memory, memory_method).at_most(MEMORY),
        Figure::single(
            "version_size",
            "MiB",
            size,
            "Bytes of the stripped release program.",
        ),
    ])
}

fn time_once(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("the program could not be started")?;
    let took = begun.elapsed();
    anyhow::ensure!(status.success(), "the program ended with {status}");
    Ok(took)
}

/// KiB of its largest resident set. What `wait4` says would hold this process's size too.
fn peak_memory(program: &Path) -> Result<f64> {
    let (reader, mut writer) = std::io::pipe()?;
    fill_pipe(&mut writer)?;
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(writer)
        .spawn()
        .context("the program could not be started")?;
    let peak =
        wait_until_blocked(&mut child).and_then(|()| status(&child.id().to_string(), "VmHWM:"));
    // Nobody reads any more, so it ends.
    drop(reader);
    child.wait()?;
    peak
}

/// Fills a pipe, so that whoever writes next waits.
fn fill_pipe(writer: &mut PipeWriter) -> Result<()> {
    rustix::io::ioctl_fionbio(&*writer, true)?;
    let full = loop {
        match writer.write(&[0; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    rustix::io::ioctl_fionbio(&*writer, false)?;
    Ok(full?)
}

/// Waits until the process sleeps and goes on sleeping.
fn wait_until_blocked(child: &mut Child) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut asleep = 0;
    while asleep < 20 {
        anyhow::ensure!(
            Instant::now() < deadline,
            "the program does not come to its output"
        );
        anyhow::ensure!(child.try_wait()?.is_none(), "the program ended early");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
        let sleeps = stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'));
        asleep = if sleeps { asleep + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
