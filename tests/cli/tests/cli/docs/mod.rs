//! The documentation holds: each of its code blocks is run as printed, read by the program that it
//! is for, compiled, or has a reason not to be.
//!
//! A person tries what a page shows, word by word. What only looks right is found here.

mod blocks;
mod commands;
mod containers;
mod databases;
mod files;
mod five_minutes;
mod help_examples;
mod packages;
mod snippets;
mod terminals;
mod waiting;

use blocks::{Check, blocks, checked_as, pages};
use conjure_kit::repo_root;
use insta::assert_snapshot;

#[test]
fn each_block_is_run_checked_or_has_its_reason() {
    let (mut checked, mut reasons) = (0, Vec::<(String, usize)>::new());
    let mut wrong = Vec::new();
    for block in pages().iter().flat_map(|page| blocks(page)) {
        match block.check() {
            Ok(Check::NotRun(reason)) => {
                let told = format!("{}: {reason}", block.page);
                match reasons.last_mut() {
                    Some((last, count)) if *last == told => *count += 1,
                    _ => reasons.push((told, 1)),
                }
            }
            Ok(_) => checked += 1,
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let not_run: usize = reasons.iter().map(|(_, count)| count).sum();
    println!("{checked} blocks are run or checked, {not_run} are not");
    let reasons = reasons.iter().map(|(told, count)| match count {
        1 => format!("{told}\n"),
        _ => format!("{told} ({count} blocks)\n"),
    });
    let reasons = format!("{not_run} are not run\n{}", reasons.collect::<String>());
    // Whoever adds a line here says why no reader will ever run that block.
    assert_snapshot!(reasons, @r"
    26 are not run
    README.md: a drawing
    README.md: it installs
    conjure-host/docs/api.md: a piece of an answer
    conjure-host/docs/cli.md: examples of the help, which a test runs line by line (20 blocks)
    conjure-host/docs/terminal.md: the reader's tmux has its own file
    skill-sdk/docs/abi.md: signatures, in no language
    skill-sdk/docs/any-language.md: a layout, in no language
    ");
}

#[test]
fn examples_in_rust_are_compiled_with_the_examples_of_a_crate() {
    let crates = ["tests/cli/src/lib.rs", "skill-sdk/src/lib.rs"]
        .map(|file| std::fs::read_to_string(repo_root().join(file)).unwrap());
    for block in checked_as(&Check::Example) {
        let name = block.page.rsplit('/').next().unwrap_or_default();
        let included = format!("{name}\")]");
        assert!(
            crates.iter().any(|file| file.contains(&included)),
            "{}: no crate has this page in `#[doc = include_str!(…)]`",
            block.place()
        );
    }
}
