//! `conjure serve` on a store with 10,000 threads: how soon it is ready, and what it needs idle.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use conjure_host::store::{Location, Options as StoreOptions, Store, ThreadId};

use super::on_runtime;
use crate::figure::Figure;
use crate::measured::status;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds until it is ready.
const READY: f64 = 60.0;
/// MiB that it may need idle.
const IDLE: f64 = 25.0;

const THREADS: usize = 10_000;
const ROUNDS: usize = 30;
const WARM_UP: usize = 3;
/// How long it is left alone before its memory is looked at.
const IDLE_TIME: Duration = Duration::from_secs(2);

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let program = shipped.program()?.to_owned();
    on_runtime(async move {
        let dir = tempfile::tempdir()?;
        for part in ["home", "data", "plugins"] {
            conjure_host::fs::create_private_dir(dir.path().join(part))?;
        }
        let place = Location::File(dir.path().join("data/conjure.db"));
        let store = Store::open(&place, &StoreOptions::default()).await?;
        for number in 0..THREADS {
            let label = format!("Thread {number}");
            store.create_thread(&ThreadId::fresh(), &label).await?;
        }
        store.close().await;
        let (mut ready, mut idle) = (Samples::default(), Samples::default());
        for round in 0..WARM_UP + ROUNDS {
            let begun = Instant::now();
            let served = BenchServer::start(&program, dir.path())?;
            let took = ms(begun.elapsed());
            if round >= WARM_UP {
                ready.push(took);
            }
            if round >= WARM_UP && round % 10 == 0 {
                tokio::time::sleep(IDLE_TIME).await;
                let pid = served.0.id().to_string();
                idle.push(status(&pid, "VmRSS:")? / 1024.0);
            }
        }
        Ok(vec![
            Figure::new(
                "serve_ready",
                "ms",
                &ready,
                "From starting `conjure serve` (release, stripped) to the line with its URL, which \
                 comes when it is ready; 10,000 threads in an SQLite file, no plugins.",
            )
            .at_most(READY),
            Figure::single(
                "serve_idle",
                "MiB",
                idle.percentile(100),
                "Resident memory (VmRSS) of such a server 2 s later, before any request; the \
                 largest of 3.",
            )
            .at_most(IDLE),
        ])
    })
}

/// A server that is ready. It is killed when this is dropped.
struct BenchServer(Child);

impl BenchServer {
    fn start(program: &Path, dir: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--json"])
            .current_dir(dir.join("home"))
            .env_clear()
            .env("HOME", dir.join("home"))
            .env("CONJURE_DATA_DIR", dir.join("data"))
            .env("CONJURE_PLUGIN_PATH", dir.join("plugins"))
            .env("CONJURE_ISOLATION", "in-process")
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("the program could not be started")?;
        let stdout = child.stdout.take().context("it has no output")?;
        let served = Self(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(line.contains("\"url\""), "it does not serve: {line:?}");
        Ok(served)
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
