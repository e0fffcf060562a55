//! Files that a provider keeps: Anthropic's Files API.

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use serde_json::Value;

use super::ProviderError;
use super::http_provider::HttpProvider;
use super::remote_skills::text;

/// A file that the provider keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteFile {
    /// What requests call it: `file_…`.
    pub id: String,
    /// As it was uploaded, or as a skill named it. A name only: it never becomes a path as it is.
    pub name: String,
    /// Such as `text/csv`, as the provider says it.
    pub media_type: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    /// Whether it can be downloaded: what skills made can, what was uploaded cannot.
    pub downloadable: bool,
    /// When it was made, as the provider says it.
    pub created_at: Option<String>,
    /// When it ends, as the provider says it; nothing for one that stays.
    pub expires_at: Option<String>,
}

impl HttpProvider {
    /// The files that the provider keeps, in its own order. They are the whole workspace's.
    ///
    /// # Errors
    /// As for a request; of kind `unsupported` where the provider has no Files API.
    #[boxed]
    pub async fn remote_files(&self) -> Result<Vec<RemoteFile>, ProviderError> {
        let listed = self.all("files", "").await?;
        Ok(listed.iter().filter_map(file).collect())
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// As [`HttpProvider::remote_files`].
    #[boxed]
    pub async fn delete_file(&self, id: &str) -> Result<(), ProviderError> {
        self.check_file_api()?;
        self.check_id(id)?;
        self.delete(&format!("files/{id}")).await
    }
}

fn file(value: &Value) -> Option<RemoteFile> {
    Some(RemoteFile {
        id: text(value, "id")?,
        name: text(value, "filename").unwrap_or_default(),
        media_type: text(value, "mime_type"),
        size: value.get("size_bytes").and_then(Value::as_u64),
        downloadable: value.get("downloadable").and_then(Value::as_bool) == Some(true),
        created_at: text(value, "created_at"),
        expires_at: text(value, "expires_at"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_is_read_with_what_is_told_of_it() {
        let read = file(&json!({
            "id": "file_1", "type": "file", "filename": "a.csv", "mime_type": "text/csv",
            "size_bytes": 3, "downloadable": true, "created_at": "2026-08-20T00:00:00Z",
            "expires_at": null,
        }));
        let read = read.unwrap();
        assert_eq!((read.name.as_str(), read.size), ("a.csv", Some(3)));
        assert!(read.downloadable && read.expires_at.is_none());
        assert!(!file(&json!({ "id": "file_2" })).unwrap().downloadable);
        assert_eq!(file(&json!({ "filename": "nobody's" })), None);
    }
}
