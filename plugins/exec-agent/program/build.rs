//! Builds the agent as one program without libraries, so that it runs in any image and a plugin
//! that brings it along stays one file.
//!
//! Cargo is asked for it in a directory of its own, so that it does not wait for the build that
//! this is a part of.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let agent = out.join("conjure-exec-agent");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let used = ["../process-tree", "../confinement"].map(|dir| source.join(dir));
    for crate_of_it in [&source].into_iter().chain(&used) {
        for part in ["Cargo.toml", "src"] {
            let part = crate_of_it.join(part);
            println!("cargo::rerun-if-changed={}", part.display());
        }
    }
    let built = build(&source, &out.join("agent"))?;
    fs::copy(&built, &agent).map_err(|error| format!("{}: {error}", built.display()))?;
    println!("cargo::rustc-env=CONJURE_EXEC_AGENT={}", agent.display());
    Ok(())
}

fn build(source: &Path, target_dir: &Path) -> Result<PathBuf, String> {
    let target = env::var("TARGET").map_err(|error| error.to_string())?;
    let cargo = env::var_os("CARGO").ok_or("CARGO is not set")?;
    let mut command = Command::new(cargo);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        // What the outer build says about itself, and how it wraps the compiler, is not for this.
        let outer = [
            "CARGO_PKG_",
            "CARGO_CFG_",
            "CARGO_FEATURE_",
            "CARGO_PROFILE_",
        ]
        .iter()
        .any(|start| name.starts_with(start));
        let wrapper = matches!(
            name.as_str(),
            "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER" | "RUSTFLAGS" | "CARGO_ENCODED_RUSTFLAGS"
        );
        if outer || wrapper {
            command.env_remove(&name);
        }
    }
    let done = command
        .current_dir(source)
        .args(["build", "--quiet", "--locked", "--offline", "--release"])
        .args([
            "--package",
            "conjure-exec-agent",
            "--bin",
            "conjure-exec-agent",
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(target_dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "true")
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !done.success() {
        return Err("the agent was not built; cargo's message is above. It is \
             linked with the static C library, which Debian has in libc6-dev and Fedora in \
             glibc-static"
            .to_owned());
    }
    Ok(target_dir.join(target).join("release/conjure-exec-agent"))
}
