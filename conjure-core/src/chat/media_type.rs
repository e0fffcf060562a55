//! What can be done with a file of a media type.

use super::ArtifactRef;

impl ArtifactRef {
    /// Whether it is an image of a type that every provider takes.
    #[must_use]
    pub fn is_image(&self) -> bool {
        is_image(&self.media_type)
    }

    /// Whether it is text that a model can read.
    #[must_use]
    pub fn is_text(&self) -> bool {
        is_text(&self.media_type)
    }

    /// Whether it is a PDF.
    #[must_use]
    pub fn is_pdf(&self) -> bool {
        is_pdf(&self.media_type)
    }
}

/// Whether a type is that of an image which every provider takes.
#[must_use]
pub fn is_image(media_type: &str) -> bool {
    matches!(
        media_type,
        "image/jpeg" | "image/png" | "image/gif" | "image/webp"
    )
}

/// Whether a type is that of a PDF.
#[must_use]
pub fn is_pdf(media_type: &str) -> bool {
    media_type == "application/pdf"
}

/// Whether a type is text that a model can read.
#[must_use]
pub fn is_text(media_type: &str) -> bool {
    let is_known = matches!(
        media_type,
        "application/json"
            | "application/javascript"
            | "application/sql"
            | "application/toml"
            | "application/x-ndjson"
            | "application/x-sh"
            | "application/xml"
            | "application/yaml"
    );
    is_known
        || media_type.starts_with("text/")
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
}
