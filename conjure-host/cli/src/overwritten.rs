//! What a file has that a call would overwrite, so that a person who is asked about the call sees the
//! difference.

use std::path::Path;

use conjure_config::fs;
use conjure_core::chat::CallAnnounced;
use conjure_runtime::session::Session;
use serde_json::Value;

/// The executor that works on this machine's files.
const HERE: &str = "local";
/// The most bytes of a file that is shown as it is.
const MOST_BYTES: u64 = 1024 * 1024;

/// The text of the file that a call would write whole, where that is in the working directory and on
/// this machine.
pub(crate) async fn text(
    session: &Session,
    directory: &Path,
    call: &CallAnnounced,
) -> Option<String> {
    let is_here = session
        .table()
        .route(&call.name)
        .is_some_and(|route| &*route.kind == HERE);
    let said = |field: &str| call.arguments.get(field).and_then(Value::as_str);
    let (Some(path), Some(_), true) = (said("path"), said("file_text"), is_here) else {
        return None;
    };
    let (path, dir) = (directory.join(path), directory.to_owned());
    // Aside: a disk may be slow.
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
    let bytes = fs::read_same(&path, MOST_BYTES).ok()??;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
