//! The files of an installation, laid out in one folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{PLUGINS, licences, sbom};
use crate::{artifacts::BuildOutput, files, repo};

/// Shells with a script that completes, and what the script is called there.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "conjure.bash"),
    ("zsh", "_conjure"),
    ("fish", "conjure.fish"),
];

/// Folders of pages that the README, the help and errors name, which stand in an installation as they
/// stand in the repository.
const PAGES: [&str; 4] = [
    "conjure-core/docs",
    "conjure-host/docs",
    "conjure-host/docs/pictures",
    "skill-sdk/docs",
];

/// Fills an empty folder: the program with `plugins` beside it, where it looks for them, and what
/// belongs to it. `runs_here`: whether what was built runs on this machine.
pub(super) fn fill(folder: &Path, built: &BuildOutput, runs_here: bool) -> Result<()> {
    files::empty(folder)?;
    for inner in ["plugins", "man", "completions"] {
        files::empty(&folder.join(inner))?;
    }
    files::copy(built.program("conjure")?, &folder.join("conjure"))?;
    for package in PLUGINS {
        let library = built.library(package)?;
        let name = library.file_name().context("a library without a name")?;
        files::copy(library, &folder.join("plugins").join(name))?;
    }
    list_plugins(&folder.join("plugins"))?;
    let of_this_machine;
    let program = if runs_here {
        built.program("conjure")?
    } else {
        of_this_machine = BuildOutput::dev(&[super::PROGRAM])?;
        of_this_machine.program("conjure")?
    };
    let mut man = std::process::Command::new(program);
    repo::run(man.arg("man").arg(folder.join("man")))?;
    for (shell, name) in SHELLS {
        let script = std::process::Command::new(program)
            .args(["completions", shell])
            .output()
            .context("conjure could not be started")?;
        write(&folder.join("completions").join(name), &script.stdout)?;
    }
    files::copy(&repo::root().join("LICENSE"), &folder.join("LICENSE"))?;
    files::copy(&repo::root().join("README.md"), &folder.join("README.md"))?;
    pages(folder)?;
    let crates = sbom::crates()?;
    write(
        &folder.join("THIRD-PARTY-LICENSES.txt"),
        licences::texts(&crates)?.as_bytes(),
    )?;
    write(
        &folder.join("sbom.cdx.json"),
        sbom::document(&crates)?.as_bytes(),
    )?;
    // Debian has programs in one folder and what they need in another; the program finds its plugins
    // where it really is.
    #[cfg(unix)]
    std::os::unix::fs::symlink("../lib/conjure/conjure", folder.join("link"))?;
    Ok(())
}

/// Lists the plugins that are there: only these come with the program, and run in its process.
fn list_plugins(folder: &Path) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    let mut libraries = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    libraries.sort();
    super::checksums(folder, &libraries)
}

/// Copies the pages, without the folders in them that are for those who change the program.
fn pages(folder: &Path) -> Result<()> {
    for inner in PAGES {
        let (from, to) = (repo::root().join(inner), folder.join(inner));
        files::empty(&to)?;
        let entries = fs::read_dir(&from);
        for entry in entries.with_context(|| format!("cannot read `{}`", from.display()))? {
            let page = entry?.path();
            if page.is_file() {
                let name = page.file_name().context("a page without a name")?;
                files::copy(&page, &to.join(name))?;
            }
        }
    }
    Ok(())
}

fn write(file: &PathBuf, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).with_context(|| format!("cannot write `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_has_the_pages_that_its_texts_name() {
        let folder = tempfile::tempdir().unwrap();
        pages(folder.path()).unwrap();
        for page in [
            "conjure-core/docs/glossary.md",
            "conjure-host/docs/sessions.md",
            "conjure-host/docs/wires.md",
            "skill-sdk/docs/any-language.md",
        ] {
            assert!(folder.path().join(page).is_file(), "{page}");
        }
        assert!(folder.path().join("conjure-host/docs/pictures").is_dir());
    }
}
