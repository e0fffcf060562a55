//! Room on the disk of CI: what is built for one part of a run is removed when no later part uses it.
//!
//! Elsewhere nothing is removed, since the next build of a developer takes it up.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifacts::BuildOutput;
use crate::{files, repo};

/// Removes folders of build output in CI, given from the root of the repository or of the file system.
///
/// # Errors
/// When one is there and cannot be removed.
pub(crate) fn remove(folders: &[impl AsRef<Path>]) -> Result<()> {
    if !repo::in_ci() {
        return Ok(());
    }
    for folder in folders {
        files::remove(&repo::root().join(folder))?;
    }
    Ok(())
}

/// The folders of these names where cargo builds, and in the `target` of the repository, where tests build
/// wherever cargo does.
pub(crate) fn in_targets(names: &[&str]) -> Vec<PathBuf> {
    in_folders(names, &[repo::target(), repo::root().join("target")])
}

fn in_folders(names: &[&str], folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Removes the programs that run the tests in CI, given how they were built: they are the most of what
/// is built, and the programs, plugins and crates beside them stay.
///
/// # Errors
/// When cargo does not say which they are, or one cannot be removed.
pub(crate) fn remove_tests(targets: &[&str]) -> Result<()> {
    if !repo::in_ci() {
        return Ok(());
    }
    let mut command = repo::cargo(["build", "--quiet"]);
    for test in BuildOutput::by(command.args(targets))?.tests {
        std::fs::remove_file(&test)
            .with_context(|| format!("cannot remove `{}`", test.display()))?;
    }
    Ok(())
}

/// How much is free where cargo builds, for people; nothing where `df` does not say.
pub(crate) fn describe_free() -> Option<String> {
    let target = repo::target();
    // Before the first build it is not there.
    let folder = target.ancestors().find(|folder| folder.is_dir())?;
    let mut df = Command::new("df");
    let text = repo::text_of(df.arg("-Pk").arg(folder)).ok()?;
    parse_free(&text)
}

/// The free space in what `df -Pk` prints.
fn parse_free(text: &str) -> Option<String> {
    let kilobytes: f64 = text
        .lines()
        .nth(1)?
        .split_whitespace()
        .nth(3)?
        .parse()
        .ok()?;
    Some(format!("{:.1} GiB free", kilobytes / (1024.0 * 1024.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_build_is_found_wherever_cargo_builds() {
        let (moved, own) = (PathBuf::from("/t"), PathBuf::from("/r/target"));
        let found = in_folders(&["compat", "plugin-new"], &[moved, own.clone()]);
        let expected = [
            "/r/target/compat",
            "/r/target/plugin-new",
            "/t/compat",
            "/t/plugin-new",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let found = in_folders(&["compat"], &[own.clone(), own]);
        assert_eq!(found, [PathBuf::from("/r/target/compat")]);
    }

    #[test]
    fn what_is_free_is_read_from_the_line_below_the_head() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                    /dev/vda 264000000 180000000 80740352 70% /\n";
        assert_eq!(parse_free(text).unwrap(), "77.0 GiB free");
        assert_eq!(parse_free("Filesystem\n"), None);
        assert!(describe_free().is_some(), "df says nothing here");
    }
}
