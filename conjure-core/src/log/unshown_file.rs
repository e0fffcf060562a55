//! Files that a person attached, of which the model reads no more than the name, as the log keeps them.
//!
//! Data only: the words are made where it is shown.

use serde::{Deserialize, Serialize};

/// An attached file whose bytes are not to be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFile {
    /// Name of the file, which the model reads.
    pub name: String,
    /// The reason that its bytes are not to be had.
    pub reason: LossReason,
}

/// Why the bytes of an attached file are not to be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LossReason {
    /// The host does not have them.
    NoBytes,
    /// The file is attached to another turn.
    OtherTurn,
    /// The file's bytes could not be moved to the thread's files.
    Failed {
        /// What failed, in words.
        error: String,
    },
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}

/// An attached file that the model is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnshownFile {
    /// Name of the file, which the model reads.
    pub name: String,
    /// The reason that the model is not shown it.
    pub reason: UnshownReason,
}

/// Why a model is not shown what is in a file, and reads only its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum UnshownReason {
    /// The file is of a media type that no provider takes.
    MediaType {
        /// The media type.
        media_type: String,
    },
    /// The file's bytes are not of the type that it is said to be.
    OtherType,
    /// An image has too many bytes.
    LargeImage {
        /// The most bytes of one that is shown.
        most: u64,
    },
    /// A PDF has too many bytes.
    LargePdf {
        /// The most bytes of one that is shown.
        most: u64,
    },
    /// A text has too many bytes.
    LargeText {
        /// The most bytes of one that is shown.
        most: u64,
    },
    /// An image has too many pixels, or does not say how many.
    Pixels,
    /// A PDF is encrypted.
    Encrypted,
    /// A text is of an encoding that is not known.
    Encoding,
    /// The request carries as many images as it may.
    ManyImages {
        /// How many that is.
        most: u64,
    },
    /// The request carries as many bytes as it may.
    ManyBytes {
        /// How many that is.
        most: u64,
    },
    /// The model cannot look at images.
    NoImages {
        /// The model.
        model: String,
    },
    /// The model is not sent PDFs.
    NoPdfs {
        /// The model.
        model: String,
    },
    /// The Gemini API looks at no GIF.
    NoGif,
    /// Something that a later version knows.
    #[serde(other)]
    Other,
}
