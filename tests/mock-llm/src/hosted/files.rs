//! The Files API: `/v1/files`.

use serde_json::{Value, json};

use super::{Body, Hosted, HostedRefusal, list_page, multipart, page};
use crate::request::Request;
use crate::validate::Rule;

/// The largest file that is taken.
const MAX_FILE_BYTES: usize = 500 * 1024 * 1024;

/// A file at the provider.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFile {
    /// `file_…`.
    pub id: String,
    /// As it was uploaded, or as a skill named it.
    pub name: String,
    /// Content of the file; `None` once the file is over.
    pub bytes: Option<Vec<u8>>,
    /// Whether it can be downloaded: what skills made can, what was uploaded cannot.
    pub downloadable: bool,
    /// The size that is told, where it is not that of the content.
    pub reported_size: Option<u64>,
}

impl StoredFile {
    /// A file.
    #[must_use]
    pub fn new(id: &str, name: &str, bytes: impl Into<Vec<u8>>, downloadable: bool) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            bytes: Some(bytes.into()),
            downloadable,
            reported_size: None,
        }
    }

    fn metadata(&self) -> Value {
        let size = self.bytes.as_ref().map_or(0, Vec::len);
        let size = self
            .reported_size
            .unwrap_or_else(|| u64::try_from(size).unwrap_or(u64::MAX));
        json!({
            "id": self.id,
            "type": "file",
            "filename": self.name,
            "mime_type": "application/octet-stream",
            "size_bytes": size,
            "created_at": "2026-08-20T00:00:00Z",
            "downloadable": self.downloadable,
            "expires_at": null,
        })
    }
}

impl Hosted {
    /// With a file, whatever is to be told of it.
    #[must_use]
    pub fn file(mut self, file: StoredFile) -> Self {
        self.files.push(file);
        self
    }

    pub(super) fn files_api(
        &mut self,
        request: &Request,
        path: &[&str],
    ) -> Result<Body, HostedRefusal> {
        match (request.method.as_str(), path) {
            ("POST", [_]) => self.upload(request),
            ("GET", [_]) => {
                let all: Vec<Value> = self.files.iter().map(StoredFile::metadata).collect();
                let (data, next) = page(request, &all, 1000)?;
                Ok(list_page(&data, next.as_deref(), false))
            }
            ("GET", [_, id]) => Ok(Body::Json(self.find_file(id)?.metadata())),
            ("GET", [_, id, "content"]) => {
                let file = self.find_file(id)?;
                if !file.downloadable {
                    return Err(HostedRefusal {
                        status: 400,
                        message: format!("File `{id}` is not downloadable."),
                        rule: None,
                    });
                }
                let gone = || HostedRefusal::not_found(format!("File `{id}` has expired."));
                Ok(Body::Bytes(file.bytes.clone().ok_or_else(gone)?))
            }
            ("DELETE", [_, id]) => {
                self.find_file(id)?;
                self.files.retain(|file| file.id != **id);
                Ok(Body::Json(json!({"id": id, "type": "file_deleted"})))
            }
            _ => Err(HostedRefusal::not_found("no such resource")),
        }
    }

    fn find_file(&self, id: &str) -> Result<&StoredFile, HostedRefusal> {
        let found = self.files.iter().find(|file| file.id == id);
        found.ok_or_else(|| HostedRefusal::not_found(format!("File not found: {id}")))
    }

    fn upload(&mut self, request: &Request) -> Result<Body, HostedRefusal> {
        let wrong = |what: &str| HostedRefusal::violation(Rule::Multipart, what);
        let fields = multipart::fields(request)
            .ok_or_else(|| wrong("body: must be multipart/form-data, whole"))?;
        let mut file = None;
        for field in fields {
            match field.name.as_str() {
                "file" if file.is_none() => file = Some(field),
                "expires_in_seconds" => {
                    let seconds = String::from_utf8_lossy(&field.bytes).parse::<u64>();
                    if !seconds.is_ok_and(|it| (3600..=7_776_000).contains(&it)) {
                        return Err(wrong("expires_in_seconds: must be 3600 to 7776000"));
                    }
                }
                other => return Err(wrong(&format!("{other}: extra inputs are not permitted"))),
            }
        }
        let file = file.ok_or_else(|| wrong("file: field required"))?;
        if file.media_type.is_none() {
            return Err(wrong("file: its part needs a content-type"));
        }
        let name = file.filename.unwrap_or_default();
        let is_forbidden = |c: char| "<>:\"|?*\\/".contains(c) || u32::from(c) < 32;
        let length = name.chars().count();
        if !(1..=255).contains(&length) || name.chars().any(is_forbidden) {
            let message =
                format!("filename: `{name}` must be 1-255 characters without <>:\"|?*\\/");
            return Err(HostedRefusal::violation(Rule::FileName, message));
        }
        if file.bytes.is_empty() || file.bytes.len() > MAX_FILE_BYTES {
            return Err(wrong("file: must have 1 byte to 500 MB"));
        }
        let id = self.mint("file_");
        let stored = StoredFile::new(&id, &name, file.bytes, false);
        let told = stored.metadata();
        self.files.push(stored);
        Ok(Body::Json(told))
    }
}
