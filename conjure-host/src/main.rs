//! The program `conjure`: the command line over the library `conjure_host`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
