//! Builds the agent as one program without libraries, so that it runs in any image and a plugin
//! that brings it along stays one file.
//!
//! Cargo is asked for it in a directory of its own, so that it does not wait for the build that
//! this is a part of. For a release it is as small as it gets, since each container is given a copy; for
//! work on the code it is what is built soonest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Cargo settings for a release.
const SMALL: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s"),
    ("CARGO_PROFILE_RELEASE_LTO", "fat"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
];
/// Cargo settings for work on the code.
const DEV_SETTINGS: [(&str, &str); 5] = [
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "false"),
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "4"),
    ("CARGO_PROFILE_DEV_PANIC", "abort"),
    ("CARGO_PROFILE_DEV_STRIP", "true"),
];

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
    let said = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let target = said("TARGET")?;
    let is_release = said("PROFILE")? == "release";
    let (profile, dir, settings) = match is_release {
        true => ("release", "release", SMALL),
        false => ("dev", "debug", DEV_SETTINGS),
    };
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
        .args(["build", "--quiet", "--locked", "--offline"])
        .args(["--package", "conjure-exec-agent"])
        .args(["--bin", "conjure-exec-agent", "--profile", profile])
        .args(["--target", &target, "--target-dir"])
        .arg(target_dir)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_INCREMENTAL", "0")
        .envs(settings)
        .status()
        .map_err(|error| format!("cargo could not be started: {error}"))?;
    if !done.success() {
        return Err("the agent was not built; cargo's message is above. It is \
             linked with the static C library, which Debian has in libc6-dev and Fedora in \
             glibc-static"
            .to_owned());
    }
    let built = target_dir.join(target).join(dir);
    Ok(built.join("conjure-exec-agent"))
}
