//! The bytes of the files that a request shows to the model.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_core::request::{Attachment, ModelRequest, media};

use super::shown_file::{RequestFileBudget, presentable_content};
use crate::artifacts::{Artifacts, OpenArtifact};

/// What can be shown of the files that a request names, by handle. A file that is not to be had, or
/// that does not fit, is missing: then the model reads its name, and that it is not shown more. The
/// person was told so of what they attached when they said it.
pub(super) async fn request_media(
    request: &ModelRequest,
    artifacts: &Artifacts,
) -> BTreeMap<String, Attachment> {
    let mut room = RequestFileBudget::default();
    let mut attachments = BTreeMap::new();
    for artifact in media(request) {
        let Ok(most) = room.most_bytes(artifact) else {
            continue;
        };
        let Ok(opened) = artifacts.open(&artifact.id).await else {
            continue;
        };
        let media_type = artifact.media_type.clone();
        let read = tokio::task::spawn_blocking(move || read(&opened, &media_type, most));
        if let Ok(Some((attachment, bytes))) = read.await {
            room.reserve(artifact, bytes);
            attachments.insert(artifact.id.clone(), attachment);
        }
    }
    attachments
}

/// A file of at most so many bytes, and how many of it are shown.
fn read(file: &OpenArtifact, media_type: &str, most: u64) -> Option<(Attachment, u64)> {
    let bytes = file.bytes(most).ok()??;
    let (media_type, bytes) = presentable_content(bytes, media_type).ok()?;
    let size = bytes.len() as u64;
    let data = STANDARD.encode(bytes);
    Some((Attachment { media_type, data }, size))
}
