//! From a plugin's arrival in the table to `tools/list_changed` at a stdio client.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use conjure_host::Host;
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_mcp::{McpHost, McpOptions};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::on_runtime;
use crate::figure::Figure;
use crate::mcp_client::McpClient;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Milliseconds that it may take.
const TARGET: f64 = 1.0;

const ROUNDS: usize = 50;
const WARM_UP: usize = 3;
/// Between two changes: what changes right behind another one is told together with it.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let library = shipped.skill()?.to_owned();
    on_runtime(async move {
        let dir = tempfile::tempdir()?;
        let host = Host::builder().data_dir(dir.path()).build().await?;
        let plugins = dir.path().join("plugins");
        conjure_host::fs::create_private_dir(&plugins)?;
        let path = plugins.join("libmeasured.so");
        conjure_host::fs::write_atomic(&path, &std::fs::read(&library)?)?;

        let spec = SessionSpec::hybrid([BackendSpec::all_native()]);
        let server = McpHost::new(host.clone(), spec, McpOptions::default())?;
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(theirs);
        let end = CancellationToken::new();
        tokio::spawn(server.serve_streams(read, write, end.clone()));
        let (read, write) = tokio::io::split(ours);
        let mut client = McpClient::connect(read, write).await?;
        let without = client.tools().await?;

        let mut samples = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            let mut table = host.registry().subscribe();
            table.mark_unchanged();
            let swapped = tokio::spawn(async move {
                let changed = table.changed().await;
                changed.map(|()| Instant::now())
            });
            // On a thread of its own, as the watcher of a plugin directory does it.
            let (host_there, there) = (host.clone(), path.clone());
            let added = tokio::task::spawn_blocking(move || {
                let added = host_there.registry().add(&there, true);
                added.map(drop)
            });
            let heard = next_notification(&mut client).await?;
            added.await??;
            let swapped = swapped.await??;
            if round == 0 {
                ensure!(client.tools().await? > without, "the tools are the same");
            }
            if round >= WARM_UP {
                samples.push(ms(heard.saturating_duration_since(swapped)));
            }
            sleep(CHANGE_INTERVAL).await;
            host.registry().remove(&path).context("it was there")?;
            self::next_notification(&mut client).await?;
            sleep(CHANGE_INTERVAL).await;
        }
        end.cancel();
        let method = "From when the new table of plugins is seen to when the official Rust SDK's \
                      client is told `tools/list_changed`, both in the process of the server and \
                      over a pipe of its own; a skill is added and removed in turn.";
        Ok(vec![
            Figure::new("mcp_hot_add", "ms", &samples, method).at_most(TARGET),
        ])
    })
}

/// When the client is told the next time.
async fn next_notification(client: &mut McpClient) -> Result<Instant> {
    let heard = timeout(NOTIFICATION_TIMEOUT, client.changed.recv()).await;
    heard
        .context("the client was told nothing")?
        .context("the client is gone")
}
