//! The commands of the repository, run as `cargo xtask COMMAND`.
//!
//! Each command is one module; this file only reads the command line. Nothing of the product
//! is in here: what a user of Conjure runs is the binary `conjure`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal: what it prints is its result"
)]

mod api;
mod artifacts;
mod browser;
mod builds;
mod campaign;
mod chaos;
mod check;
mod compat;
mod demo;
mod dist;
mod files;
mod fuzz;
mod left_out;
mod linker;
mod order;
mod packages;
mod perf;
mod repo;
mod sanitize;
mod soak;
mod space;
mod suite;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The commands of the Conjure repository.
///
/// Each prints what it runs. Exit codes: 0 done, 1 something failed (the last lines say what),
/// 2 wrong usage.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the host and its plugins, and run "many backends, one agent" on a log file
    ///
    /// A native skill reads the log, a skill folder analyses it through the local executor, and
    /// the answer is a report. No key is needed: a script plays the model, and the output says
    /// so. The files made are in target/demo/work.
    Demo(demo::Args),
    /// Run the tests and checks of CI, and say what was left out and why
    ///
    /// Builds everything first, since tests load the plugins as real libraries. Uses
    /// cargo-nextest where it is installed, else `cargo test`. A test that cannot run here
    /// prints `LEFT OUT: <what>: <why>`. Then come the checks of `cargo xtask check`; one whose
    /// tool is not installed is left out. In CI come the address sanitizer then, and plugins of
    /// the commit from which libraries go on loading. With CI=true, what is left out is a failure,
    /// unless it is expected there, and what was built for a part is removed when no later one
    /// needs it. Nothing needs root. `.ci/run` does this, and then tries the page in a browser
    /// and what people install.
    Test(suite::Args),
    /// Try the page in a real browser, against the real server with the mock model
    ///
    /// Playwright on Debian's Chromium. Needs what `tests/browser/install.sh DIR` installs, and
    /// `CONJURE_BROWSER_PEERS` to be that DIR.
    Browser(browser::Args),
    /// Make what people install: an archive, a Debian package, and checksums
    ///
    /// With the program, the plugins that come with it, man pages, completions, licences and a list
    /// of what is inside. They are in target/dist. The Debian package needs cargo-deb.
    Dist(dist::Args),
    /// Run the benchmarks on the shipped path and print name, ratio, value, unit and method
    ///
    /// Beside each stands what the machine did: how long a fixed loop took before and after, stolen
    /// time, load. Ratios and times in runs of that loop come first, because absolute times of two
    /// days differ with what else a machine does.
    Perf(perf::Args),
    /// Find out which functions a run executes, by which release builds are laid out
    ///
    /// Writes tests/linker/order.txt. To be run now and then: what it does not name lies where it
    /// happens to lie. Takes as long as a release build. Needs valgrind.
    Order,
    /// Kill a host at random moments, over and over, and check what it left
    ///
    /// After each kill nothing that was acknowledged may be missing, no call may have run twice
    /// unseen, every thread must go on, the database must be sound, and no process and no container
    /// may be left. PostgreSQL is the server that `CONJURE_TEST_POSTGRES` names, or a private one.
    /// The data of a failure is kept, and the message says how to run its kill again.
    Chaos(chaos::Args),
    /// End the worker processes of a plugin in every way, over and over
    ///
    /// Ten thousand calls that crash, hang, lie or use up their memory. The host must stay the process
    /// that it is, each error must name its cause, the plugin must serve the next call, and sessions
    /// that use another one must not notice.
    Crashes(campaign::Args),
    /// Replace a skill and a backend under sessions that call them all the while
    ///
    /// A thousand swaps of each between two versions, under 500 calls a second of 20 sessions. Each
    /// call must be answered by the version that its table named, with the state of those before, and
    /// every session that was opened at a backend must be closed there.
    Swaps(campaign::SwapArgs),
    /// Run many sessions of a server for hours, and look at its memory, descriptors and children
    ///
    /// Two hours with 200 sessions. With `--profile nightly` ten minutes, and more until it can tell
    /// whether memory grows; a night that cannot tell fails. Fails where memory grows by
    /// more than 0.5 MiB an hour, beyond the error of the measurement, or where descriptors or child
    /// processes are left.
    Soak(soak::Args),
    /// Give bytes that nobody thought of to each reader of foreign bytes, and look for panics
    ///
    /// Ten minutes for each target. With the address sanitizer, so that the `unsafe` of the ABI and the
    /// SDK is looked at as well. Needs a nightly Rust and cargo-fuzz.
    Fuzz(fuzz::Args),
    /// Run the tests of the ABI and the SDK with the address sanitizer
    ///
    /// Looks at their `unsafe`: what is used after it was freed, freed twice or leaked. CI does it as
    /// well. Needs a nightly Rust.
    Sanitize,
    /// Package the crates that authors of plugins depend on, and build what is in the packages
    ///
    /// Without a network. Fails where a manifest lacks what a registry asks for, or depends on a crate
    /// by its path alone.
    Package,
    /// Build a plugin with every compiler in every way, and load it in both places
    ///
    /// The oldest compiler that the SDK promises, the workspace's and the newest, each as debug, release,
    /// LTO, stripped, with another allocator and with `panic = "abort"`, in the host's process and in a
    /// worker: 36 runs of `conjure plugin test`. Fails where one has another outcome than the page
    /// skill-sdk/docs/compatibility.md promises. `CONJURE_RUSTC_185` and `CONJURE_RUSTC_196` name the
    /// other compilers; the cells of one that is not named are left out, and said to be.
    Compat(compat::Args),
    /// Hold the public items of the crates that are published against their lists
    ///
    /// Tells what breaks crates that compile apart from what is new. The lists are in
    /// skill-sdk/docs/public-api; with CONJURE_WRITE_FIXTURES=1 they are written anew, unless something
    /// breaks that the version does not allow to. Needs nothing but the source.
    Api(api::Args),
    /// Check the house rules that no compiler knows
    Tidy(tidy::Args),
    /// Check formatting, lints, dependencies, documentation and house rules, as CI does
    ///
    /// Runs all of them, also after one failed. Needs cargo-deny
    /// (`cargo install cargo-deny --locked`).
    Check,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => suite::run(&args),
        Command::Browser(args) => browser::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Perf(args) => perf::run(&args),
        Command::Order => order::run(),
        Command::Api(args) => api::run(&args),
        Command::Compat(args) => compat::run(&args),
        Command::Package => packages::check(),
        Command::Chaos(args) => chaos::run(&args),
        Command::Crashes(args) => campaign::crashes(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Sanitize => sanitize::run(),
        Command::Soak(args) => soak::run(&args),
        Command::Swaps(args) => campaign::swaps(&args),
        Command::Tidy(args) => tidy::run(&args),
        Command::Check => check::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
