//! The examples in Rust of the SDK's pages, as they are printed: each is a file of its own in a crate
//! that depends on what the tutorial's manifest names, and on nothing else. What of them is a test runs.

use std::fs;
use std::process::Command;

use conjure_kit::{Workspace, repo_root};

use super::blocks::{Check, blocks};

const PAGES: [&str; 3] = [
    "skill-sdk/docs/attribute.md",
    "skill-sdk/docs/mcp.md",
    "skill-sdk/docs/writing-a-skill.md",
];

/// The manifest that the tutorial prints, with this checkout's SDK and the features that it names.
fn manifest() -> String {
    let printed = blocks("skill-sdk/docs/writing-a-skill.md")
        .into_iter()
        .find(|block| block.check() == Ok(Check::Manifest))
        .unwrap()
        .text;
    let sdk = repo_root().join("skill-sdk");
    let sdk = format!(
        "conjure-skill-sdk = {{ path = \"{}\", features = [\"async\", \"testkit\"] }}",
        sdk.display()
    );
    let lines = printed.lines().map(|line| match line {
        line if line.starts_with("conjure-skill-sdk = ") => sdk.as_str(),
        line => line,
    });
    let lines: Vec<&str> = lines.collect();
    assert!(lines.contains(&sdk.as_str()), "{printed}");
    format!(
        "[package]\nname = \"printed-snippets\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
         [workspace]\n{}\n",
        lines.join("\n")
    )
}

#[test]
fn what_is_printed_compiles_and_its_tests_pass() {
    let workspace = Workspace::new().unwrap();
    workspace.write("Cargo.toml", manifest()).unwrap();
    workspace.write("src/lib.rs", "").unwrap();
    let mut count = 0;
    for page in PAGES {
        for block in blocks(page) {
            if block.check() != Ok(Check::Example) {
                continue;
            }
            // No line is there for a tool only.
            let hidden = block.text.lines().find(|line| line.starts_with("# "));
            assert_eq!(hidden, None, "{}", block.place());
            let stem = page.rsplit('/').next().unwrap().trim_end_matches(".md");
            let name = format!("tests/{}_{}.rs", stem.replace('-', "_"), block.line);
            workspace.write(&name, &block.text).unwrap();
            count += 1;
        }
    }
    assert!(count >= 11, "{count}");
    // A beginning that needs no network; cargo makes its own lock file out of it.
    let lock = workspace.work().join("Cargo.lock");
    fs::copy(repo_root().join("Cargo.lock"), lock).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--tests", "--no-fail-fast"])
        .current_dir(workspace.work())
        .env("CARGO_TARGET_DIR", repo_root().join("target/plugin-new"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    let ran = "it_greets_with_a_word_that_it_is_given ... ok";
    assert!(said.contains(ran), "{said}");
}
