//! Media types of files.

/// The media type that a name suggests.
pub fn media_type(name: &str) -> String {
    match name.rsplit('.').next() {
        Some("jsonl" | "ndjson") => "application/x-ndjson".to_owned(),
        Some("log") => "text/plain".to_owned(),
        _ => mime_guess::from_path(name)
            .first_or_octet_stream()
            .essence_str()
            .to_owned(),
    }
}
