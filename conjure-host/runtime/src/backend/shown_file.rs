//! What a model is shown of a file, how much of files a request carries, and why a file is not shown.

use std::borrow::Cow;

use conjure_core::chat::ArtifactRef;
use conjure_core::chat::media_type::{is_image, is_pdf, is_text};
use conjure_core::numerals::thousands;
use conjure_core::request::{MOST_TEXT, MOST_TOTAL};

use crate::artifacts::{is_encrypted_pdf, is_lookable, sniffed, text_of};

/// The most images of a request; of more the oldest are named only. Providers take larger ones where
/// there are no more.
const MOST_IMAGES: usize = 20;

/// What is left of the files that a request carries.
#[derive(Debug)]
pub(crate) struct RequestRoom {
    bytes: u64,
    images: usize,
}

/// Why a model is not shown what is in a file, and reads only its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnshownReason {
    /// It is of a media type that no provider takes.
    MediaType(String),
    /// Its bytes are not of the type that it is said to be.
    OtherType,
    /// An image has too many bytes.
    LargeImage,
    /// A PDF has too many bytes.
    LargePdf,
    /// A text has too many bytes.
    LargeText,
    /// An image has too many pixels, or does not say how many.
    Pixels,
    /// A PDF is encrypted.
    Encrypted,
    /// A text is of an encoding that is not known.
    Encoding,
    /// The request carries as many images as it may.
    ManyImages,
    /// The request carries as many bytes as it may.
    ManyBytes,
    /// This model cannot look at images.
    NoImages {
        /// The model.
        model: String,
    },
    /// This model is not sent PDFs.
    NoPdfs {
        /// The model.
        model: String,
    },
    /// The Gemini API looks at no GIF.
    NoGif,
}

impl Default for RequestRoom {
    fn default() -> Self {
        Self {
            bytes: MOST_TOTAL,
            images: MOST_IMAGES,
        }
    }
}

impl RequestRoom {
    /// The most bytes that may be read of a file that is to go into the request.
    ///
    /// # Errors
    /// [`UnshownReason`] when it does not fit.
    pub(crate) fn most_bytes(&self, artifact: &ArtifactRef) -> Result<u64, UnshownReason> {
        let has_more_than = |most: u64| artifact.size.is_some_and(|size| size > most);
        let most = artifact.most_bytes();
        if has_more_than(most) {
            return Err(UnshownReason::large(artifact));
        }
        if artifact.is_image() && self.images == 0 {
            return Err(UnshownReason::ManyImages);
        }
        if has_more_than(self.bytes) {
            return Err(UnshownReason::ManyBytes);
        }
        Ok(most.min(self.bytes))
    }

    /// Counts a file that goes into the request with so many bytes.
    pub(crate) fn take(&mut self, artifact: &ArtifactRef, bytes: u64) {
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
pub(crate) fn shown(bytes: Vec<u8>, said: &str) -> Result<(String, Vec<u8>), UnshownReason> {
    match sniffed(&bytes) {
        Some(found) if is_image(found) && !is_lookable(&bytes) => Err(UnshownReason::Pixels),
        Some(found) if is_pdf(found) && is_encrypted_pdf(&bytes) => Err(UnshownReason::Encrypted),
        Some(found) => Ok((found.to_owned(), bytes)),
        None if is_image(said) || is_pdf(said) => Err(UnshownReason::OtherType),
        None if is_text(said) => {
            let text = text_of(&bytes).ok_or(UnshownReason::Encoding)?;
            if text.len() as u64 > MOST_TEXT {
                return Err(UnshownReason::LargeText);
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

impl UnshownReason {
    fn large(artifact: &ArtifactRef) -> Self {
        if artifact.is_text() {
            Self::LargeText
        } else if artifact.is_pdf() {
            Self::LargePdf
        } else {
            Self::LargeImage
        }
    }

    /// The reason shown to the person, with what to do about it, of one file or of several.
    pub(crate) fn words(&self, is_one: bool) -> String {
        let (are, have, their) = match is_one {
            true => ("it is", "it has", "its"),
            false => ("they are", "they have", "their"),
        };
        match self {
            Self::MediaType(media_type) => format!(
                "{are} {media_type}, and models are shown PNG, JPEG, GIF and WebP images, PDFs and texts"
            ),
            Self::OtherType => {
                format!("{their} bytes are not of the type that {are} said to be")
            }
            Self::LargeImage => {
                "an image of at most 3.75 MB is shown; attach a smaller one".to_owned()
            }
            Self::LargePdf => "a PDF of at most 3.75 MB is shown; attach a part of it".to_owned(),
            Self::LargeText => format!(
                "a text of at most {} bytes is shown; attach a part of it",
                thousands(MOST_TEXT)
            ),
            Self::Pixels => format!(
                "{have} more than 8,000 pixels on a side, or {their} beginning does not say how many"
            ),
            Self::Encrypted => {
                format!("{are} encrypted, and providers refuse that; attach what needs no password")
            }
            Self::Encoding => format!("{their} encoding is not known; save as UTF-8"),
            Self::ManyImages => {
                format!("a request carries at most {MOST_IMAGES} images; attach fewer at once")
            }
            Self::ManyBytes => {
                "a request carries at most 15 MB of files; attach fewer or smaller ones at once"
                    .to_owned()
            }
            Self::NoImages { model } => {
                format!("the model `{model}` cannot look at images; choose one that can")
            }
            Self::NoPdfs { model } => format!(
                "the model `{model}` is not sent PDFs; attach the text, or choose another model"
            ),
            Self::NoGif => "the Gemini API looks at no GIF; attach PNG, JPEG or WebP".to_owned(),
        }
    }
}
