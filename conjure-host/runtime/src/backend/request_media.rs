//! The bytes of the files that a request shows to the model.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_core::chat::media_type::{is_image, is_pdf};
use conjure_core::request::{Attachment, MOST_TOTAL, ModelRequest, media};

use crate::artifacts::{Artifacts, OpenArtifact, is_encrypted_pdf, is_lookable, sniffed};

/// The most images of a request; of more the oldest are named only. Providers take larger ones where
/// there are no more.
const MOST_IMAGES: usize = 20;

/// What can be shown of the files that a request names, by handle. A file that is not to be had, or
/// is too long, is missing: then the model reads its name.
pub(super) async fn request_media(
    request: &ModelRequest,
    artifacts: &Artifacts,
) -> BTreeMap<String, Attachment> {
    let (mut left, mut images) = (MOST_TOTAL, 0);
    let mut attachments = BTreeMap::new();
    for artifact in media(request) {
        let most = artifact.most_bytes().min(left);
        if artifact.size.is_some_and(|size| size > most) {
            continue;
        }
        if artifact.is_image() && images == MOST_IMAGES {
            continue;
        }
        let Ok(opened) = artifacts.open(&artifact.id).await else {
            continue;
        };
        let media_type = artifact.media_type.clone();
        let read = tokio::task::spawn_blocking(move || read(&opened, media_type, most));
        if let Ok(Some((attachment, bytes))) = read.await {
            left -= bytes;
            images += usize::from(artifact.is_image());
            attachments.insert(artifact.id.clone(), attachment);
        }
    }
    attachments
}

/// A file of at most so many bytes, and how many it has.
fn read(file: &OpenArtifact, media_type: String, most: u64) -> Option<(Attachment, u64)> {
    let bytes = file.bytes(most).ok()??;
    let size = bytes.len() as u64;
    let media_type = shown_as(&bytes, media_type)?;
    let data = STANDARD.encode(bytes);
    Some((Attachment { media_type, data }, size))
}

/// What bytes are, where a provider takes them: it refuses the whole conversation for an image that
/// is none, that is of another type than it is said to be, or that is too large, and for a PDF that is
/// encrypted.
fn shown_as(bytes: &[u8], said: String) -> Option<String> {
    match sniffed(bytes) {
        Some(found) if is_image(found) => is_lookable(bytes).then(|| found.to_owned()),
        Some(found) => (!is_encrypted_pdf(bytes)).then(|| found.to_owned()),
        None => (!is_image(&said) && !is_pdf(&said)).then_some(said),
    }
}
