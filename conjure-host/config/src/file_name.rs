//! Names of files, out of what somebody sent.

/// One path component out of whatever somebody sent: separators, control characters and leading
/// dots are gone, and it has at most 120 characters.
pub fn safe_name(name: &str) -> String {
    let last = name
        .rsplit(['/', '\\'])
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    let clean: String = last
        .chars()
        .map(|c| {
            if c.is_control() || matches!(c, ':' | '"' | '<' | '>' | '|' | '?' | '*') {
                '_'
            } else {
                c
            }
        })
        .take(120)
        .collect();
    let clean = clean.trim_start_matches('.').trim();
    if clean.is_empty() {
        "file".to_owned()
    } else {
        clean.to_owned()
    }
}
