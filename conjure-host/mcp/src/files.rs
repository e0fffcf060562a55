//! Files that calls made, as resources: `conjure://artifact/HANDLE`.
//!
//! A read gives the file's beginning at the most; `?offset=BYTES&length=BYTES` gives any part of
//! it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_config::fs::range_of;
use serde_json::{Value, json};

use conjure_runtime::artifacts::{Artifact, Artifacts};

const SCHEME: &str = "conjure://artifact/";
/// The most bytes of one read.
const MAX_READ_BYTES: u64 = 1024 * 1024;

/// The URI of a file.
pub(super) fn uri(artifact: &Artifact) -> String {
    format!("{SCHEME}{}", artifact.id)
}

/// The file as a resource.
pub(super) fn resource(artifact: &Artifact) -> Value {
    let mut resource = json!({
        "uri": uri(artifact),
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "description": format!("A file made by a call of `{}`", artifact.source),
    });
    if let (Some(size), Some(fields)) = (artifact.size, resource.as_object_mut()) {
        fields.insert("size".to_owned(), size.into());
    }
    resource
}

/// The template that tells how to read a part of a file.
pub(super) fn template() -> Value {
    json!({
        "uriTemplate": format!("{SCHEME}{{handle}}{{?offset,length}}"),
        "name": "artifact",
        "description": format!(
            "A file that a call made, or `length` bytes of it from `offset` on; at most \
             {MAX_READ_BYTES} bytes are read at once"
        ),
    })
}

/// Whether a URI names a file of a call.
pub(super) fn is_file(uri: &str) -> bool {
    uri.starts_with(SCHEME)
}

/// Reads a file of the session; nothing when there is no such file.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn read(artifacts: &Artifacts, uri: &str) -> Result<Option<Value>, String> {
    let Some((handle, offset, length)) = parts(uri)? else {
        return Ok(None);
    };
    // Only a handle, never a name: a name means another file as soon as a call makes one.
    let known = artifacts.list();
    let Some(artifact) = known.iter().find(|artifact| artifact.id == handle) else {
        return Ok(None);
    };
    let opened = artifacts.open(handle).await.map_err(|e| e.to_string())?;
    let reading = tokio::task::spawn_blocking(move || range_of(&opened.file, offset, length));
    let bytes = reading
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("the file {handle} cannot be read: {error}"))?;
    let mut content = json!({ "uri": uri, "mimeType": artifact.media_type });
    if let Some(fields) = content.as_object_mut() {
        match text(&artifact.media_type, bytes) {
            Ok(text) => fields.insert("text".to_owned(), text.into()),
            Err(bytes) => fields.insert("blob".to_owned(), STANDARD.encode(bytes).into()),
        };
    }
    Ok(Some(content))
}

/// Handle, offset and length.
fn parts(uri: &str) -> Result<Option<(&str, u64, u64)>, String> {
    let Some(rest) = uri.strip_prefix(SCHEME) else {
        return Ok(None);
    };
    let (handle, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (mut offset, mut length) = (0, MAX_READ_BYTES);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let number = |value: &str| {
            value
                .parse::<u64>()
                .map_err(|_| format!("`{pair}` is no number of bytes"))
        };
        match pair.split_once('=') {
            Some(("offset", value)) => offset = number(value)?,
            Some(("length", value)) => length = number(value)?.min(MAX_READ_BYTES),
            _ => return Err(format!("`{pair}` is neither `offset` nor `length`")),
        }
    }
    Ok(Some((handle, offset, length)))
}

/// The bytes as text, where they are text. A character that a range cuts is left out at its end.
fn text(media_type: &str, bytes: Vec<u8>) -> Result<String, Vec<u8>> {
    let textual = media_type.starts_with("text/")
        || ["application/json", "application/xml", "application/toml"].contains(&media_type);
    if !textual {
        return Err(bytes);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let cut = error.utf8_error().error_len().is_none() && valid > 0;
            let mut bytes = error.into_bytes();
            if !cut {
                return Err(bytes);
            }
            bytes.truncate(valid);
            String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_by_its_handle_in_parts_and_by_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        let text = "grüße, 世界";
        let kept = artifacts.spill("b", "a.txt", text).unwrap();
        let raw = artifacts
            .keep_bytes("b", "a.bin", "image/png", &[0, 159])
            .unwrap();
        let read = async |uri: &str| read(&artifacts, uri).await;
        let content = read(&uri(&kept)).await.unwrap().unwrap();
        assert_eq!(
            (&content["text"], &content["mimeType"]),
            (&json!(text), &json!("text/plain"))
        );
        // A range may cut a character.
        let part = format!("{}?offset=2&length=1", uri(&kept));
        let content = read(&part).await.unwrap().unwrap();
        assert_eq!(content["blob"], json!(STANDARD.encode([0xc3])));
        let part = format!("{}?offset=0&length=3", uri(&kept));
        assert_eq!(read(&part).await.unwrap().unwrap()["text"], "gr");
        let content = read(&uri(&raw)).await.unwrap().unwrap();
        assert_eq!(content["blob"], json!(STANDARD.encode([0, 159])));
        for unknown in [
            "conjure://artifact/a.txt",
            "conjure://artifact/../x",
            "file:///etc/passwd",
        ] {
            assert_eq!(read(unknown).await, Ok(None), "{unknown}");
        }
        assert!(read("conjure://artifact/file-1?offset=x").await.is_err());
        assert!(read("conjure://artifact/file-1?to=1").await.is_err());
    }

    #[tokio::test]
    async fn what_is_put_in_the_place_of_a_file_is_not_read() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (made, secret) = (root.join("work/d"), root.join("secret"));
        for dir in [&made, &secret] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join("out.txt"), dir.display().to_string()).unwrap();
        }
        let artifacts = Artifacts::new(vec![root.join("work")], root.join("cache"));
        let path = made.join("out.txt");
        let file = conjure_skill_sdk::protocol::FileRef::at(path.display().to_string());
        let known = artifacts.register("local", &file, None).unwrap();
        assert!(read(&artifacts, &uri(&known)).await.unwrap().is_some());
        std::fs::remove_file(&path).unwrap();
        symlink(secret.join("out.txt"), &path).unwrap();
        let refused = read(&artifacts, &uri(&known)).await.unwrap_err();
        assert!(refused.contains("such as a link"), "{refused}");
        // The same of the directory.
        std::fs::rename(&made, root.join("work/d2")).unwrap();
        symlink(&secret, &made).unwrap();
        assert!(read(&artifacts, &uri(&known)).await.is_err());
    }
}
