//! The SDK that a crate of a plugin depends on: the one that this program carries, written into the data
//! directory, or one that is named.

use std::path::{Path, PathBuf};

use conjure_sdk_source::SourceFile;

use super::args::display_path;
use super::error::CliError;
use super::output;

/// The crate that plugins depend on.
const SDK: &str = "conjure-skill-sdk";
/// The file of a crate or a workspace.
const MANIFEST: &str = "Cargo.toml";

/// The right side of the dependency on an SDK that is named.
pub(crate) fn named_sdk(given: &str) -> Result<String, CliError> {
    if semver::VersionReq::parse(given).is_ok() {
        return Ok(format!("version = \"{given}\""));
    }
    let real = Path::new(given)
        .canonicalize()
        .ok()
        .filter(|path| path.join("Cargo.toml").is_file());
    match real {
        Some(path) => Ok(format!("path = {}", toml_path(&path)?)),
        None => Err(CliError::usage(format!(
            "`{given}` is neither a version nor the directory of an SDK (with a Cargo.toml)"
        ))),
    }
}

/// Like [`named_sdk`], for the SDK that this program carries, written into the data directory once.
pub(crate) fn bundled_sdk(data_dir: &Path) -> Result<String, CliError> {
    let dir = write_bundled_sdk(data_dir).map_err(|error| {
        let error = error.context("the SDK cannot be written into the data directory");
        error.hint("name one that is elsewhere with `--sdk PATH` or `--sdk VERSION`")
    })?;
    let version = conjure_sdk_source::VERSION;
    Ok(format!(
        "version = \"{version}\", path = {}",
        toml_path(&dir)?
    ))
}

/// Writes it, unless it is there as a whole.
fn write_bundled_sdk(data_dir: &Path) -> Result<PathBuf, CliError> {
    use conjure_config::fs;
    let files = conjure_sdk_source::files().map_err(CliError::host_from)?;
    let all = data_dir.join("sdk");
    // Another source of the same version, as while the SDK is worked on, has a directory of its own.
    let name = format!(
        "{}-{}",
        conjure_sdk_source::VERSION,
        conjure_sdk_source::DIGEST
    );
    let dir = all.join(name);
    let is_whole = || {
        let is_same = |file: &SourceFile| {
            fs::read(dir.join(&file.path)).is_ok_and(|bytes| bytes == file.bytes)
        };
        files.iter().all(is_same)
    };
    if !is_whole() {
        fs::create_private_dir(data_dir).map_err(CliError::host_from)?;
        fs::create_dir_all(&all).map_err(CliError::host_from)?;
        // One process at a time: what another has just made whole is not moved away. File systems that
        // cannot lock a directory leave it to the check behind.
        let lock = fs::open(&all).map_err(CliError::host_from)?;
        let _ = lock.lock();
        if is_whole() {
            return dir.canonicalize().map_err(CliError::host_from);
        }
        let new = tempfile::tempdir_in(&all).map_err(CliError::host_from)?;
        let (whole, damaged) = (new.path().join("new"), new.path().join("old"));
        for file in &files {
            let path = whole.join(&file.path);
            let written = fs::create_dir_all(path.parent().unwrap_or(&all))
                .and_then(|()| fs::write(&path, &file.bytes));
            written.map_err(CliError::host_from)?;
        }
        if fs::is_dir(&dir).unwrap_or(false) {
            // Somebody changed it, or the machine went down while it was written.
            fs::rename(&dir, &damaged).map_err(CliError::host_from)?;
        }
        let moved = fs::rename(&whole, &dir);
        // Another process may have been quicker.
        if !is_whole() {
            moved.map_err(CliError::host_from)?;
        }
    }
    dir.canonicalize().map_err(CliError::host_from)
}

/// A path as a manifest has it.
fn toml_path(path: &Path) -> Result<String, CliError> {
    match path.to_str() {
        Some(path) => Ok(toml::Value::from(path).to_string()),
        None => Err(CliError::usage(format!(
            "a manifest cannot name `{}`, which is not UTF-8",
            path.display()
        ))
        .hint("name the SDK with `--sdk PATH` or `--sdk VERSION`")),
    }
}

/// Looks whether the SDK is there that a crate, or a crate of a workspace, names by its path. What this
/// program carries is written again where it is gone.
///
/// # Errors
/// When the crate names another one, with what to write in its place.
pub(crate) fn ensure_sdks(crate_dir: &Path, data_dir: &Path) -> Result<(), CliError> {
    for (manifest, path) in named_sdks(crate_dir) {
        ensure_sdk(&manifest, &path, data_dir)?;
    }
    Ok(())
}

fn ensure_sdk(manifest: &Path, path: &Path, data_dir: &Path) -> Result<(), CliError> {
    let is_there = || path.join(MANIFEST).is_file();
    if is_there() {
        return Ok(());
    }
    let missing = CliError::usage(format!(
        "`{}` depends on the SDK in `{}`, which is not there",
        display_path(manifest),
        path.display()
    ));
    let Ok(dependency) = bundled_sdk(data_dir) else {
        return Err(missing.hint(
            "set the dependency's `path` to where it is now; `conjure plugin create` writes the SDK of \
             this program into the data directory",
        ));
    };
    if is_there() {
        output::print_note(format_args!(
            "note: the SDK of this program is written into {} again",
            display_path(path)
        ));
        return Ok(());
    }
    Err(missing.hint(format!(
        "the SDK of this program is in the data directory: set `{SDK} = {{ {dependency} }}` there, with \
         the features that it has"
    )))
}

/// Where the SDK is that the crate in a directory is built with, as the manifests say that cargo reads for
/// it: its own, that of its workspace, and those of the workspace's crates. Each with its manifest.
fn named_sdks(crate_dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut dirs = vec![crate_dir.to_owned()];
    let workspace = crate_dir.ancestors().find_map(|dir| {
        let members = members(dir, manifest(dir)?.get("workspace")?);
        let is_of_it = dir == crate_dir || members.iter().any(|member| member == crate_dir);
        is_of_it.then(|| std::iter::once(dir.to_owned()).chain(members))
    });
    dirs.extend(workspace.into_iter().flatten());
    let mut named = Vec::new();
    for dir in dirs {
        let paths = manifest(&dir).map_or_else(Vec::new, |manifest| sdk_paths(&dir, &manifest));
        for path in paths {
            let one = (dir.join(MANIFEST), path);
            if !named.contains(&one) {
                named.push(one);
            }
        }
    }
    named
}

fn manifest(dir: &Path) -> Option<toml::Table> {
    let text = conjure_config::fs::read_to_string(dir.join(MANIFEST)).ok()?;
    toml::from_str(&text).ok()
}

/// The directories of a workspace's crates; `*` stands for every directory there.
fn members(dir: &Path, workspace: &toml::Value) -> Vec<PathBuf> {
    let members = workspace.get("members").and_then(toml::Value::as_array);
    let members = members.into_iter().flatten().filter_map(|it| it.as_str());
    let dirs = members.flat_map(|member| match member.strip_suffix('*') {
        Some(all) => conjure_config::fs::entries(dir.join(all)).unwrap_or_default(),
        None => vec![dir.join(member)],
    });
    dirs.collect()
}

/// The paths of the SDK in a manifest: of what the crate depends on, or only its tests do, and of what a
/// workspace has its crates depend on.
fn sdk_paths(dir: &Path, manifest: &toml::Table) -> Vec<PathBuf> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let own = kinds.into_iter().filter_map(|kind| manifest.get(kind));
    let of_workspace = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let paths = own
        .chain(of_workspace)
        .filter_map(|dependencies| dependencies.get(SDK)?.get("path")?.as_str());
    paths.map(|path| dir.join(path)).collect()
}

#[cfg(test)]
mod tests {
    use conjure_config::fs;

    use super::*;

    #[test]
    fn an_sdk_that_is_gone_is_written_again_or_told() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let crate_dir = root.path().join("notes");
        fs::create_dir_all(&crate_dir).unwrap();
        let depend = |kind: &str, dependency: &str| {
            let text = format!("[{kind}]\n{SDK} = {{ {dependency} }}\n");
            fs::write(crate_dir.join(MANIFEST), text).unwrap();
        };
        let own = bundled_sdk(&data).unwrap();
        for kind in ["dependencies", "dev-dependencies"] {
            depend(kind, &own);
            let (_, sdk) = named_sdks(&crate_dir).pop().unwrap();
            assert!(sdk.starts_with(data.canonicalize().unwrap()), "{sdk:?}");
            fs::remove_dir_all(data.join("sdk")).unwrap();
            ensure_sdks(&crate_dir, &data).unwrap();
            assert!(sdk.join("src/lib.rs").is_file());
        }
        // Another one, such as that of a machine of before.
        let other = "version = \"0.1\", path = \"/nowhere/sdk/0.1.0-00000000\"";
        depend("dependencies", other);
        let error = ensure_sdks(&crate_dir, &data).unwrap_err();
        assert!(error.to_string().contains("/nowhere/sdk"), "{error}");
        assert!(error.hints()[0].contains(&own), "{:?}", error.hints());
        depend("dependencies", "version = \"0.1\"");
        ensure_sdks(&crate_dir, &data).unwrap();
    }

    #[test]
    fn the_sdk_of_a_workspace_and_of_its_crates_is_looked_for_too() {
        let root = tempfile::tempdir().unwrap();
        let crates = ["one", "all/two", "all/three"].map(|name| root.path().join(name));
        for (number, dir) in crates.iter().enumerate() {
            fs::create_dir_all(dir).unwrap();
            let text = format!("[dependencies]\n{SDK} = {{ path = \"/sdk/{number}\" }}\n");
            fs::write(dir.join(MANIFEST), text).unwrap();
        }
        let workspace = format!(
            "[workspace]\nmembers = [\"one\", \"all/*\"]\n[workspace.dependencies]\n{SDK} = {{ path = \
             \"sdk\" }}\n"
        );
        fs::write(root.path().join(MANIFEST), workspace).unwrap();
        for dir in [root.path(), crates[1].as_path()] {
            let named = named_sdks(dir).into_iter();
            let mut named: Vec<PathBuf> = named.map(|(_, path)| path).collect();
            named.sort();
            let mut all = ["/sdk/0", "/sdk/1", "/sdk/2"].map(PathBuf::from).to_vec();
            all.push(root.path().join("sdk"));
            all.sort();
            assert_eq!(named, all);
        }
    }
}
