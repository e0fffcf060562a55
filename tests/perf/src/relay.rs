//! A process between a client and a server that copies the bytes of both and nothing else: what any
//! program in that place costs on this machine.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// Begins the server, and copies until it ends.
pub(crate) fn run(server: &Path) -> Result<()> {
    let mut child = Command::new(server)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} could not be started", server.display()))?;
    let to = child.stdin.take().context("it has an input")?;
    let from = child.stdout.take().context("it has an output")?;
    std::thread::spawn(move || copy(std::io::stdin(), to));
    copy(from, std::io::stdout())?;
    child.wait()?;
    Ok(())
}

fn copy(mut from: impl Read, mut to: impl Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
            return Ok(());
        };
        to.write_all(read)?;
        to.flush()?;
    }
}
