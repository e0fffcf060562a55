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
    println!(
        "cargo::rustc-env=CONJURE_RUSTC={}",
        version.trim().chars().take(64).collect::<String>()
    );
    println!("cargo::rerun-if-changed=build.rs");
}
