//! `conjure completions`.

use clap_complete::Shell;

use super::exit::Exit;

/// Prints a script that completes `conjure` in a shell. For bash:
/// `source <(conjure completions bash)`.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs, command: &mut clap::Command) -> Exit {
    clap_complete::generate(args.shell, command, "conjure", &mut std::io::stdout());
    Exit::Fine
}
