//! `conjure completions`.

use clap_complete::Shell;

use super::exit::Exit;
use super::output;

/// Prints a script that completes `conjure` in a shell. For bash:
/// `source <(conjure completions bash)`.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, command: &mut clap::Command) -> Exit {
    // It takes a write that fails for a fault of its own.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "conjure", &mut script);
    output::raw(&script);
    Exit::Success
}
