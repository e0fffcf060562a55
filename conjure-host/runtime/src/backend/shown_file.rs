//! What a model is shown of a file, how much of files a request carries, and why a file is not shown.

use std::borrow::Cow;

use conjure_core::chat::ArtifactRef;
use conjure_core::chat::media_type::{is_image, is_pdf, is_text};
use conjure_core::log::UnshownReason;
use conjure_core::request::{MAX_TEXT_BYTES, MAX_TOTAL_BYTES};

use crate::artifacts::{is_encrypted_pdf, is_lookable, sniff, text_of};

/// The most images of a request; of more the oldest are named only. Providers take larger ones where
/// there are no more.
const MOST_IMAGES: usize = 20;

/// What is left of the files that a request carries.
#[derive(Debug)]
pub(crate) struct RequestFileBudget {
    bytes: u64,
    images: usize,
}

impl Default for RequestFileBudget {
    fn default() -> Self {
        Self {
            bytes: MAX_TOTAL_BYTES,
            images: MOST_IMAGES,
        }
    }
}

impl RequestFileBudget {
    /// The most bytes that may be read of a file that is to go into the request.
    ///
    /// # Errors
    /// [`UnshownReason`] when it does not fit.
    pub(crate) fn most_bytes(&self, artifact: &ArtifactRef) -> Result<u64, UnshownReason> {
        let has_more_than = |most: u64| artifact.size.is_some_and(|size| size > most);
        let most = artifact.max_bytes();
        if has_more_than(most) {
            return Err(too_large(artifact));
        }
        if artifact.is_image() && self.images == 0 {
            let most = MOST_IMAGES as u64;
            return Err(UnshownReason::ManyImages { most });
        }
        if has_more_than(self.bytes) {
            return Err(UnshownReason::ManyBytes {
                most: MAX_TOTAL_BYTES,
            });
        }
        Ok(most.min(self.bytes))
    }

    /// Counts a file that goes into the request with so many bytes.
    pub(crate) fn reserve(&mut self, artifact: &ArtifactRef, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let images = usize::from(artifact.is_image());
        self.images = self.images.saturating_sub(images);
    }
}

/// What a model is shown of a file: the type of its bytes, and these, a text in UTF-8. A provider refuses
/// the whole conversation for an image that is none, that is of another type than it is said to be, or
/// that is too large, and for a PDF that is encrypted.
///
/// # Errors
/// [`UnshownReason`] when it is not shown.
pub(crate) fn presentable_content(
    bytes: Vec<u8>,
    said: &str,
) -> Result<(String, Vec<u8>), UnshownReason> {
    match sniff(&bytes) {
        Some(found) if is_image(found) && !is_lookable(&bytes) => Err(UnshownReason::Pixels),
        Some(found) if is_pdf(found) && is_encrypted_pdf(&bytes) => Err(UnshownReason::Encrypted),
        Some(found) => Ok((found.to_owned(), bytes)),
        None if is_image(said) || is_pdf(said) => Err(UnshownReason::OtherType),
        None if is_text(said) => {
            let text = text_of(&bytes).ok_or(UnshownReason::Encoding)?;
            if text.len() as u64 > MAX_TEXT_BYTES {
                return Err(UnshownReason::LargeText {
                    most: MAX_TEXT_BYTES,
                });
            }
            let decoded = match text {
                Cow::Owned(text) => Some(text.into_bytes()),
                Cow::Borrowed(_) => None,
            };
            Ok((said.to_owned(), decoded.unwrap_or(bytes)))
        }
        None => Ok((said.to_owned(), bytes)),
    }
}

/// Why a file is not shown that has too many bytes by itself.
fn too_large(artifact: &ArtifactRef) -> UnshownReason {
    let most = artifact.max_bytes();
    if artifact.is_text() {
        UnshownReason::LargeText { most }
    } else if artifact.is_pdf() {
        UnshownReason::LargePdf { most }
    } else {
        UnshownReason::LargeImage { most }
    }
}
