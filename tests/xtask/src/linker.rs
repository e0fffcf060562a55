//! Release builds are linked by `tests/linker`, which lays the program out as runs use it.

use std::process::Command;

use anyhow::Result;

use crate::artifacts::BuildOutput;

/// How cargo is told which linker to start.
const VARIABLE: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER";
/// Variables that give cargo the flags of rustc; where one of the others is set it takes that.
const FLAGS: [&str; 3] = [
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
];
/// A symbol says for which types a generic function was made. By its name alone the one that runs
/// execute cannot be told from a hundred that they do not.
const MANGLING_FLAG: &str = "-Csymbol-mangling-version=v0";

/// Has this build of cargo, for the machine that it runs on, linked so. Where somebody chose a
/// linker, theirs is taken.
///
/// # Errors
/// When the linker cannot be built.
pub(crate) fn use_linker(command: &mut Command) -> Result<()> {
    if !is_supported() || std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let built = BuildOutput::dev(&["conjure-linker"])?;
    command.env(VARIABLE, built.program("conjure-linker")?);
    if FLAGS.iter().all(|flags| std::env::var_os(flags).is_none()) {
        command.env(FLAGS[0], MANGLING_FLAG);
    }
    Ok(())
}

/// Whether rustc links with lld by itself here.
fn is_supported() -> bool {
    cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    ))
}
