//! Files of a prompt as the editor shows them, where that is not what is saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_client_protocol::v1::schema::{ContentBlock, ReadTextFileRequest};
use conjure_config::fs;

use super::updates::Updates;

/// The most bytes of a file that are told; more is left to tools.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// The most files of a prompt that the editor is asked for.
const MAX_FILES: usize = 16;
/// How long the editor may take for one.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The texts of linked files that are not as they are saved, by their paths. A file that the editor
/// does not give is as it is saved.
pub(crate) async fn read(updates: &Updates, prompt: &[ContentBlock]) -> BTreeMap<PathBuf, String> {
    let mut texts = BTreeMap::new();
    for path in linked_paths(prompt) {
        let request = ReadTextFileRequest::new(updates.session().clone(), &path);
        let answer = updates.client().send_request(request).block_task();
        match tokio::time::timeout(READ_TIMEOUT, answer).await {
            Ok(Ok(answer)) => {
                let text = answer.content;
                if text.len() <= MAX_FILE_BYTES && !is_saved(&path, &text) {
                    texts.insert(path, text);
                }
            }
            Ok(Err(error)) => tracing::debug!("the editor did not give a file: {error:?}"),
            Err(_) => {
                tracing::debug!("the editor did not give a file in time");
                break;
            }
        }
    }
    texts
}

/// The files that a prompt links to.
fn linked_paths(prompt: &[ContentBlock]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for block in prompt {
        if let ContentBlock::ResourceLink(link) = block
            && let Some(path) = file_path(&link.uri)
            && paths.len() < MAX_FILES
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    paths
}

/// The path of a `file:` address.
pub(crate) fn file_path(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok()?;
    let path = (url.scheme() == "file").then(|| url.to_file_path().ok())?;
    path.filter(|path| path.is_absolute())
}

/// Whether the file on disk has this text.
fn is_saved(path: &Path, text: &str) -> bool {
    let is_as_long = fs::size(path).is_ok_and(|size| u64::try_from(text.len()) == Ok(size));
    is_as_long
        && matches!(fs::is_file(path), Ok(true))
        && fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}
