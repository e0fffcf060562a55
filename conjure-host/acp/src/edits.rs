//! Changes of files: what they look like before they are made, and whether they stay in the
//! working directory.

use std::path::{Component, Path, PathBuf};

use agent_client_protocol::v1::schema::Diff;
use conjure_core::routing::Route;
use serde_json::Value;

use super::call_view::{ToolAction, path_of};

/// The executor that works on this machine's files.
const LOCAL_EXECUTOR: &str = "local";
/// The most bytes of a file that is shown as it was.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The change that a call asks for, where its tool changes a file.
pub(crate) fn diff(arguments: &Value, route: Option<&Route>, working_dir: &Path) -> Option<Diff> {
    let argument = |field: &str| arguments.get(field).and_then(Value::as_str);
    let path = path_of(arguments, working_dir)?;
    match ToolAction::of(arguments, route) {
        ToolAction::Replace => {
            let diff = Diff::new(path, argument("new_str").unwrap_or_default());
            Some(diff.old_text(argument("old_str")?.to_owned()))
        }
        ToolAction::Create => {
            // As it is before the call; without a route the call is over.
            let is_here = route.is_some_and(|route| &*route.kind == LOCAL_EXECUTOR);
            let before = is_here.then(|| text_of(&path)).flatten();
            Some(Diff::new(path, argument("file_text")?).old_text(before))
        }
        ToolAction::Read | ToolAction::Run | ToolAction::Change | ToolAction::Other => None,
    }
}

/// The text of a file; nothing where there is none, or none that can be shown.
fn text_of(path: &Path) -> Option<String> {
    let known = path.metadata().ok()?;
    if !known.is_file() || known.len() > MAX_FILE_BYTES {
        return None;
    }
    conjure_config::fs::read_to_string(path).ok()
}

/// Whether a call changes a file in the working directory and nothing else. Hidden files and
/// directories, such as `.git`, are no part of it: programs run what is written there.
pub(crate) fn stays_inside(arguments: &Value, route: Option<&Route>, working_dir: &Path) -> bool {
    let Some(route) = route.filter(|route| &*route.kind == LOCAL_EXECUTOR) else {
        return false;
    };
    let changes = matches!(
        ToolAction::of(arguments, Some(route)),
        ToolAction::Create | ToolAction::Replace
    );
    let path = path_of(arguments, working_dir);
    changes && path.is_some_and(|path| is_plain_inside(&path, working_dir))
}

fn is_plain_inside(path: &Path, working_dir: &Path) -> bool {
    let Ok(inner) = path.strip_prefix(working_dir) else {
        return false;
    };
    // Where it leads: a link in the directory may lead out of it, or into what is hidden in it.
    let Ok(root) = working_dir.canonicalize() else {
        return false;
    };
    let real = resolve_links(path);
    let inside = real.as_deref().map(|real| real.strip_prefix(&root));
    is_plain(inner) && inside.is_some_and(|inside| inside.is_ok_and(is_plain))
}

/// Whether all components of a path are plain names, and none of them is hidden.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| match part {
        Component::Normal(name) => !name.to_string_lossy().starts_with(['.', '~']),
        _ => false,
    })
}

/// Where a path leads, of which the last parts need not be there.
fn resolve_links(path: &Path) -> Option<PathBuf> {
    let mut missing = Vec::new();
    let mut known = path;
    loop {
        if let Ok(real) = known.canonicalize() {
            return Some(
                missing
                    .iter()
                    .rev()
                    .fold(real, |path, name| path.join(name)),
            );
        }
        // A link that leads nowhere is written through.
        if known.symlink_metadata().is_ok() {
            return None;
        }
        missing.push(known.file_name()?);
        known = known.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_inside_count() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir(root.join("src")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("out")).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        std::os::unix::fs::symlink(".git", root.join("plain")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("none"), root.join("dangling")).unwrap();
        let inside = |path: &str| is_plain_inside(&root.join(path), root);
        for good in ["a.rs", "src/a.rs", "new/deep/a.rs"] {
            assert!(inside(good), "{good}");
        }
        for bad in [
            "../a.rs",
            "src/../../a.rs",
            "/etc/passwd",
            ".git/hooks/pre-commit",
            "src/.env",
            "~/a.rs",
            "plain/config",
            "out/a.rs",
            "dangling",
        ] {
            assert!(!inside(bad), "{bad}");
        }
    }
}
