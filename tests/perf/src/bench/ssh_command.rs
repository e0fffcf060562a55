//! A command on a remote machine, warm, over SSH on loopback, against `ssh` of the same command.
//!
//! Needs OpenSSH's server; where there is none this is left out and says so. Connecting is not part
//! of the figure.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use conjure_host::plugin::NoServices;
use conjure_host::plugin_create;
use conjure_kit::Sshd;
use serde_json::json;

use super::executor_session::Session;
use super::on_runtime;
use crate::figure::{Figure, short};
use crate::measured::PluginFixture;
use crate::samples::{Samples, us};
use crate::shipped::BenchArtifacts;

/// Milliseconds that a command may take.
const TARGET: f64 = 1.5;
/// Starts no process beside the shell: what is measured is the way.
const COMMAND: &str = "true";
/// How many times `ssh` is measured; it takes long.
const LOGINS: usize = 20;

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let Some(sshd) = Sshd::find()? else {
        return Ok(Vec::new());
    };
    let library = shipped.ssh()?.to_owned();
    on_runtime(async move {
        let place = PluginFixture::new()?;
        let mut create = plugin_create(None);
        let inside = |name: &str| place.root.path().join(name).display().to_string();
        conjure_host::fs::create_private_dir(place.root.path().join("scratch"))?;
        create.config = json!({
            "host": "127.0.0.1",
            "port": sshd.address().port(),
            "identity_file": sshd.path("user_key"),
            "known_hosts": sshd.path("known_hosts"),
            "config_file": sshd.path("config"),
            "scratch_dir": inside("scratch"),
            "agent_dir": inside("agent"),
        });
        create.data_dir = Some(inside("data"));
        let plugin = place.load(&library)?;
        let instance = plugin.create(&create, Arc::new(NoServices)).await?;
        let session = Session::new(&place, instance).await?;
        let measured = measure(&session, &sshd).await;
        session.end().await?;
        measured
    })
}

async fn measure(session: &Session, sshd: &Sshd) -> Result<Vec<Figure>> {
    let samples = session.timed(COMMAND, None).await?;
    let mut logins = Samples::default();
    for _ in 0..LOGINS {
        let begun = Instant::now();
        login(sshd)?;
        logins.push(us(begun.elapsed()) / 1_000.0);
    }
    let method = format!(
        "`{COMMAND}` by executor.bash over a connection to an sshd on loopback that is there already \
         (an empty working directory, an output channel), one call straight after the other; median."
    );
    let note = format!(
        "the quick tenth: {} ms; `ssh` of the same command, with a connection of its own: {} ms.",
        short(samples.percentile(10)),
        short(logins.median()),
    );
    let figure = Figure::new("ssh_command", "ms", &samples, &method);
    Ok(vec![figure.at_most(TARGET).note(note)])
}

/// Runs the same command without anything of ours.
fn login(sshd: &Sshd) -> Result<()> {
    let known = format!("UserKnownHostsFile={}", sshd.path("known_hosts").display());
    let done = Command::new("ssh")
        .args(["-T", "-o", "BatchMode=yes", "-o", &known, "-F"])
        .arg(sshd.path("config"))
        .arg("-i")
        .arg(sshd.path("user_key"))
        .args(["-p", &sshd.address().port().to_string(), "--", "127.0.0.1"])
        .arg(COMMAND)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("`ssh` could not be started")?;
    ensure!(done.success(), "`ssh` failed");
    Ok(())
}
