//! The program `conjure`: the command line over the library `conjure_host`.

mod cli;

fn main() {
    let exit = cli::main();
    // Not `ExitCode`: a library that hangs while it is opened would keep the process for ever.
    conjure_plugins::end_process(exit.code())
}
