//! Moves what is too large for JSON into files of the exchange directory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{FileRef, INLINE_LIMIT, Part, ToolResult};

/// A text part below this size stays inline even in a large result.
const KEEP_INLINE: usize = 8 * 1024;

/// Encodes a result; when it is over [`INLINE_LIMIT`], its large texts become files first.
pub(crate) fn encode(
    mut result: ToolResult,
    exchange_dir: Option<&Path>,
) -> serde_json::Result<Vec<u8>> {
    let encoded = result.to_json()?;
    let Some(dir) = exchange_dir.filter(|_| encoded.len() > INLINE_LIMIT) else {
        return Ok(encoded);
    };
    for part in &mut result.content {
        let Part::Text { text } = part else { continue };
        if text.len() > KEEP_INLINE {
            if let Some(file) = write(dir, text.as_bytes()) {
                *part = Part::File { file };
            }
        }
    }
    if let Some(structured) = &result.structured {
        let bytes = serde_json::to_vec(structured)?;
        if bytes.len() > KEEP_INLINE {
            if let Some(file) = write(dir, &bytes) {
                result.structured = None;
                result.files.push(FileRef {
                    name: "structured.json".into(),
                    media_type: Some("application/json".into()),
                    ..file
                });
            }
        }
    }
    result.to_json()
}

/// Writes a file of its own name.
pub(crate) fn write(dir: &Path, bytes: &[u8]) -> Option<FileRef> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The address tells two libraries of one process apart: each has its own counter.
    let path = dir.join(format!(
        "out-{}-{:x}-{number}",
        std::process::id(),
        &raw const NEXT as usize
    ));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .ok()?;
    if std::io::Write::write_all(&mut file, bytes).is_err() {
        drop(file);
        // Half a file is worse than none; the text then stays inline.
        let _ = std::fs::remove_file(&path);
        return None;
    }
    Some(FileRef {
        name: "output.txt".into(),
        path: Some(path.to_str()?.to_owned()),
        media_type: Some("text/plain".into()),
        size: Some(bytes.len() as u64),
        ..FileRef::default()
    })
}
