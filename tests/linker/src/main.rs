//! The linker of release builds: `cc`, told how the program is laid out.
//!
//! The kernel maps a file in pieces of 64 KiB. What a run of the program executes is a fifth of it,
//! but lies all over it, so that a run has most of the program in memory. Here the functions that
//! runs execute come first, side by side (`order.txt`, which `cargo xtask order` writes); functions
//! that are the same are there once, and relocations are packed.
//!
//! rustc starts it with the arguments for `cc`. Only lld knows what is added; where another linker is
//! chosen, nothing is. With `--functions` and files it links nothing: it prints each function that they
//! define, as its symbol, a tab, and its name in the list.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use conjure_linker::{Arguments, Order, defined_functions, functions, name};

/// What runs execute, a name a line.
const EXECUTED: &str = include_str!("../order.txt");

/// Same functions once, where nobody compares their addresses; relocations as a bitmap, which glibc
/// 2.36 and newer reads.
const LAYOUT: [&str; 2] = ["-Wl,--icf=safe", "-Wl,-z,pack-relative-relocs"];

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&given) {
        Ok(code) => code,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "rustc shows what its linker prints")]
            {
                eprintln!("conjure-linker: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(given: &[OsString]) -> Result<ExitCode> {
    if let Some((first, files)) = given.split_first()
        && first == "--functions"
    {
        list(files, &mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut cc = Command::new("cc");
    cc.args(given);
    let arguments = Arguments::read(given)?;
    let place;
    if arguments.lld_links() {
        place = tempfile::tempdir().context("no place for the order of functions")?;
        let file = place.path().join("order");
        let lines = Order::new(EXECUTED).of(&defined_functions(&arguments.inputs())?);
        std::fs::write(&file, lines).context("the order of functions cannot be written")?;
        let file = file.to_str().context("the place is no text")?;
        // Not `-Wl,`, which ends a path at its first comma.
        cc.args(LAYOUT).args(["-Wl,--no-warn-symbol-ordering"]);
        cc.args(["-Xlinker", "--symbol-ordering-file", "-Xlinker", file]);
    }
    let status = cc.status().context("`cc` could not be started")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Writes a line for each function that the files define.
fn list(files: &[OsString], out: &mut impl Write) -> Result<()> {
    for file in files {
        let failed = || format!("cannot read {}", file.display());
        let bytes = std::fs::read(file).with_context(failed)?;
        for symbol in functions(&bytes).with_context(failed)? {
            writeln!(out, "{symbol}\t{}", name(&symbol))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_line_with_its_symbol_and_its_name() {
        let own = std::env::current_exe().unwrap();
        let mut lines = Vec::new();
        list(&[own.into()], &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let mut pairs = lines.lines().map(|line| line.split_once('\t').unwrap());
        let here = "a_function_has_a_line_with_its_symbol_and_its_name";
        let (symbol, of_it) = pairs.find(|(_, name)| name.ends_with(here)).unwrap();
        assert!(symbol.contains(here));
        assert_eq!(of_it, name(symbol));
    }

    #[test]
    fn what_is_no_program_is_named() {
        let text = tempfile::NamedTempFile::new().unwrap();
        let error = list(&[text.path().into()], &mut Vec::new()).unwrap_err();
        let path = text.path().to_str().unwrap();
        assert!(error.to_string().contains(path), "{error}");
    }
}
