//! What a file has that a call would overwrite, so that a person who is asked about the call sees the
//! difference.

use std::path::{Path, PathBuf};

use conjure_config::{BackendSpec, fs};
use conjure_core::chat::CallAnnounced;
use conjure_core::routing::{CommandTool, Prefix, ToolName, command_tools};
use conjure_runtime::manager::Manager;
use conjure_runtime::session::Session;
use serde_json::Value;

/// The executor that works on this machine's files.
const LOCAL_EXECUTOR: &str = "local";
/// The most bytes of a file that is shown as it is.
const MAX_BYTES: u64 = 1024 * 1024;

/// The text of the file that a call would write whole, where that is in the working directory and on
/// this machine.
pub(crate) async fn text(
    session: &Session,
    directory: &Path,
    call: &CallAnnounced,
) -> Option<String> {
    let path = written_path(call)?;
    let is_here = session
        .table()
        .route(&call.name)
        .is_some_and(|route| &*route.kind == LOCAL_EXECUTOR);
    if !is_here {
        return None;
    }
    read_in_background(directory.join(path), directory.to_owned()).await
}

/// Like [`text`], for a call in a saved session, wherever its turn runs: the session's specification
/// says which tools work on this machine's files, as the routing table may be in another process.
pub(crate) async fn text_in_saved_session(
    manager: &Manager,
    session: &str,
    call: &CallAnnounced,
) -> Option<String> {
    let path = written_path(call)?;
    let spec = manager.spec(session).await.ok()?;
    let directory = spec.working_dir?;
    if !writes_locally(&spec.backends, &call.name) {
        return None;
    }
    read_in_background(directory.join(path), directory).await
}

/// The file that a call would write whole.
fn written_path(call: &CallAnnounced) -> Option<&str> {
    let said = |field: &str| call.arguments.get(field).and_then(Value::as_str);
    said("file_text").and(said("path"))
}

/// Whether a public name is that of a tool of this machine's executor that writes files. One that has
/// an alias is not known as such: then nothing is compared.
fn writes_locally(backends: &[BackendSpec], name: &str) -> bool {
    let tool = CommandTool::CreateFile.name();
    let here = |backend: &&BackendSpec| {
        let offered = command_tools(&backend.only, &backend.except);
        backend.kind == LOCAL_EXECUTOR && offered.iter().any(|offered| offered.tool == tool)
    };
    backends.iter().filter(here).any(|backend| {
        let own = backend.name.as_deref().unwrap_or(LOCAL_EXECUTOR);
        let skills = backend.skills.iter().flatten();
        let skills = skills.filter_map(|path| Path::new(path).file_name()?.to_str());
        let public = |prefix: &str| ToolName::derive(&format!("{prefix}_{tool}"));
        let is_prefixed = match backend.prefix {
            Prefix::Backend => public(own).as_str() == name,
            Prefix::Skill | Prefix::None => skills
                .chain([own])
                .any(|prefix| public(prefix).as_str() == name),
        };
        is_prefixed || (backend.prefix == Prefix::None && name == tool)
    })
}

async fn read_in_background(path: PathBuf, dir: PathBuf) -> Option<String> {
    // A disk may be slow.
    let read = tokio::task::spawn_blocking(move || text_inside(&path, &dir));
    read.await.ok().flatten()
}

/// The text of a regular file that is in a directory wherever links lead; nothing of one that is too
/// large or has no text.
fn text_inside(path: &Path, dir: &Path) -> Option<String> {
    let (path, dir) = (path.canonicalize().ok()?, dir.canonicalize().ok()?);
    if !path.starts_with(dir) {
        return None;
    }
    let bytes = fs::read_no_follow(&path, MAX_BYTES).ok()??;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_of_this_machines_executor_overwrite_files_here() {
        let local = BackendSpec::local(["/skills/notes"]);
        let docker = BackendSpec::docker(["/skills/far"]);
        let other = BackendSpec::local(["/skills/own"]).named("other");
        let other = BackendSpec {
            prefix: Prefix::Backend,
            ..other
        };
        let reads = BackendSpec {
            except: vec!["create_file".to_owned()],
            ..BackendSpec::local([""; 0]).named("reads")
        };
        let backends = [local, docker, other, reads];
        for name in [
            "local_create_file",
            "notes_create_file",
            "other_create_file",
        ] {
            assert!(writes_locally(&backends, name), "{name}");
        }
        for name in [
            "docker_create_file",
            "far_create_file",
            "own_create_file",
            "reads_create_file",
            "local_bash_tool",
            "create_file",
        ] {
            assert!(!writes_locally(&backends, name), "{name}");
        }
    }

    #[test]
    fn only_a_text_in_the_directory_is_compared_with() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let (dir, outside) = (dir.path(), outside.path());
        std::fs::write(outside.join("secret"), "s").unwrap();
        std::fs::write(dir.join("a.txt"), "text").unwrap();
        std::fs::write(dir.join("bytes"), [0xff, 0xfe]).unwrap();
        std::fs::write(dir.join("large"), "x".repeat(1024 * 1024 + 1)).unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), dir.join("link")).unwrap();
        std::os::unix::fs::symlink("a.txt", dir.join("inner")).unwrap();
        for good in ["a.txt", "inner"] {
            assert_eq!(
                text_inside(&dir.join(good), dir).as_deref(),
                Some("text"),
                "{good}"
            );
        }
        for none in ["none", "bytes", "large", "link", "../secret", "."] {
            assert_eq!(text_inside(&dir.join(none), dir), None, "{none}");
        }
        assert_eq!(text_inside(&outside.join("secret"), dir), None);
    }
}
