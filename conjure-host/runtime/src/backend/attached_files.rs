//! Files of a session that a call hands to a backend.
//!
//! The model names them in the argument `files`; the backend gets each with its path on this
//! machine, and with the hash and the size of what is there now: it may have changed since somebody
//! told of it. What is elsewhere is fetched first, once.

use std::path::Path;

use conjure_skill_sdk::protocol::FileRef;
use serde_json::Value;

use crate::artifacts::{Artifacts, FileError};

/// The files that a call's arguments name: by handle, by name, or by a path in the session's
/// directories.
///
/// # Errors
/// What the model should know about the first that is not to be had.
pub(super) async fn attached_files(
    artifacts: &Artifacts,
    working_dir: &Path,
    arguments: &Value,
) -> Result<Vec<FileRef>, String> {
    let mut files: Vec<FileRef> = Vec::new();
    let named = arguments.get("files").and_then(Value::as_array);
    for name in named.into_iter().flatten().filter_map(Value::as_str) {
        let (opened, mut file) = match artifacts.open(name).await {
            Ok(opened) => {
                let file = file_ref(artifacts, &opened.path);
                (opened, file)
            }
            Err(error) => {
                let opened = artifacts.open_inside(&working_dir.join(name));
                let opened = opened.map_err(|_| describe_unavailable(&error))?;
                let file = FileRef::at(opened.path.display().to_string());
                (opened, file)
            }
        };
        let read = opened.digest();
        let (sha256, size) = read.map_err(|error| format!("`{name}` cannot be read: {error}"))?;
        file.sha256 = Some(sha256);
        file.size = Some(size);
        if !files.contains(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// What the model should know about a file that does not come.
fn describe_unavailable(error: &FileError) -> String {
    match error {
        FileError::FileNotFound { .. } => format!(
            "{error}. Files are named by their handles, such as `file-1`, or by paths in the \
             working directory"
        ),
        other => other.to_string(),
    }
}

fn file_ref(artifacts: &Artifacts, path: &Path) -> FileRef {
    let mut file = FileRef::at(path.display().to_string());
    let all = artifacts.list();
    let artifact = all.iter().rfind(|it| it.path.as_deref() == Some(path));
    if let Some(artifact) = artifact {
        file.name.clone_from(&artifact.name);
        file.id = Some(artifact.id.clone());
        file.media_type = Some(artifact.media_type.clone());
    }
    file
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn files_are_named_by_handle_name_or_path_and_no_other_way() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        std::fs::write(work.join("a.csv"), "a").unwrap();
        std::fs::write(work.join("b.csv"), "b").unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        let artifacts = Artifacts::new(vec![work.clone()], dir.path().join("cache"));
        let path = work.join("a.csv").display().to_string();
        let made = artifacts
            .register("local", &FileRef::at(path), None)
            .unwrap();
        let named = |names: Value| {
            let (artifacts, work) = (&artifacts, &work);
            async move { attached_files(artifacts, work, &json!({ "files": names })).await }
        };
        let files = named(json!([made.id, "a.csv", "b.csv"])).await.unwrap();
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.csv", "b.csv"]);
        assert_eq!(files[0].sha256, made.sha256);
        assert_eq!((files[1].size, files[1].sha256.is_some()), (Some(1), true));
        // Changed by nobody who told of it.
        std::fs::write(work.join("a.csv"), "other").unwrap();
        let now = named(json!([made.id])).await.unwrap();
        assert_eq!(now[0].size, Some(5));
        assert_ne!(now[0].sha256, made.sha256);
        for outside in ["../secret", "/etc/passwd", "no-such-file"] {
            let refused = named(json!([outside])).await.unwrap_err();
            assert!(refused.contains(outside), "{refused}");
        }
        assert_eq!(named(json!("a.csv")).await.unwrap(), []);
    }
}
