//! Release builds are linked by `tests/linker`, which lays the program out as runs use it.

use std::process::Command;

use anyhow::Result;

use crate::artifacts::Built;

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
const WHOLE_NAMES: &str = "-Csymbol-mangling-version=v0";

/// Has this build of cargo, for the machine that it runs on, linked so. Where somebody chose a
/// linker, theirs is taken.
///
/// # Errors
/// When the linker cannot be built.
pub(crate) fn lay_out(command: &mut Command) -> Result<()> {
    if !is_here() || std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let built = Built::dev(&["conjure-linker"])?;
    command.env(VARIABLE, built.program("conjure-linker")?);
    if FLAGS.iter().all(|flags| std::env::var_os(flags).is_none()) {
        command.env(FLAGS[0], WHOLE_NAMES);
    }
    Ok(())
}

/// Whether rustc links with lld by itself here.
fn is_here() -> bool {
    cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    ))
}
