//! Finds out which compiler builds the SDK, for the header of the plugins that it ends up in.

use std::process::Command;

fn main() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_default();
    println!("cargo::rustc-env=CONJURE_RUSTC={}", fitting(version.trim()));
    println!("cargo::rerun-if-changed=build.rs");
}

/// As much as the header has room for: what would be cut in the middle, such as how a distribution
/// built it, is left out whole.
fn fitting(version: &str) -> &str {
    const ROOM: usize = 64;
    let mut version = version;
    while version.len() > ROOM {
        match version.rfind(" (") {
            Some(at) => version = version[..at].trim_end(),
            None => return version.get(..ROOM).unwrap_or_default(),
        }
    }
    version
}
