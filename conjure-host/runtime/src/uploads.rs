//! Files that a person hands over, until the turn begins that they are attached to: then they are
//! files of its thread.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conjure_core::chat::media_type::is_image;
use conjure_core::chat::{ArtifactRef, Content, Message, Part, Role};
use conjure_core::context::notes;
use conjure_core::request::MOST_MEDIA;
use serde::{Deserialize, Serialize};

use crate::artifacts::{Artifact, Artifacts, is_lookable, media_type_of, safe_name};

/// The most bytes of a file that is handed over.
pub const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The most files that a turn attaches over HTTP.
pub const MOST_ATTACHED: usize = 20;
/// The source of files that a person attached.
pub const SOURCE: &str = "person";
/// How long a file is kept that no turn takes.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// What the id of a file begins with that no thread has yet.
const PREFIX: &str = "upload-";
/// Where these are, below the host's data.
const DIR: &str = "uploads";
/// What is known of a file, beside it.
const ABOUT: &str = "upload.json";
/// Where its bytes are; its name may be any.
const BYTES: &str = "bytes";

/// A file that a person handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// What a turn names it by, `upload-` and letters.
    pub id: String,
    /// Its name, one component of a path.
    pub name: String,
    /// What its bytes say, else what its sender says, else what its name says.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// Whether a model that can look at images is shown it as one.
    pub is_image: bool,
}

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// It is empty.
    #[error("`{name}` is empty: there is nothing to attach")]
    Empty {
        /// Its name.
        name: String,
    },
    /// It is too large.
    #[error(
        "`{name}` has {size} bytes; a file that is attached may have {MOST_BYTES}. Put it into the session's working directory, where tools read it"
    )]
    TooLarge {
        /// Its name.
        name: String,
        /// Its bytes.
        size: u64,
    },
    /// There is none of this id.
    #[error(
        "there is no upload `{id}`: it was used by a turn already, or is older than a day; hand the file over again"
    )]
    Unknown {
        /// The id.
        id: String,
    },
    /// The disk.
    #[error("`{name}` cannot be kept: {source}")]
    Disk {
        /// Its name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Keeps a file that a person hands over, for a day or until a turn takes it. `media_type` is what
/// its sender says that it is.
pub(crate) fn keep(
    data_dir: &Path,
    name: &str,
    media_type: Option<&str>,
    bytes: &[u8],
) -> Result<Upload, UploadError> {
    let name = safe_name(name);
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if bytes.is_empty() {
        return Err(UploadError::Empty { name });
    }
    if bytes.len() > MOST_BYTES {
        return Err(UploadError::TooLarge { name, size });
    }
    let media_type = media_type_of(&name, media_type, bytes);
    let is_image = is_image(&media_type) && size <= MOST_MEDIA && is_lookable(bytes);
    let number = uuid::Uuid::now_v7().simple();
    let upload = Upload {
        id: format!("{PREFIX}{number}"),
        name,
        media_type,
        size,
        is_image,
    };
    let all = data_dir.join(DIR);
    forget_old(&all);
    match write(&all.join(number.to_string()), &upload, bytes) {
        Ok(()) => Ok(upload),
        Err(source) => Err(UploadError::Disk {
            name: upload.name,
            source,
        }),
    }
}

/// A file that waits for a turn.
pub(crate) fn find(data_dir: &Path, id: &str) -> Result<Upload, UploadError> {
    let found = dir_of(data_dir, id).and_then(|dir| about(&dir));
    found.ok_or_else(|| UploadError::Unknown { id: id.to_owned() })
}

impl Upload {
    /// The part of a message that attaches it: an image where a model can look at it, else a file.
    #[must_use]
    pub fn part(&self) -> Part {
        let artifact = ArtifactRef {
            id: self.id.clone(),
            name: self.name.clone(),
            media_type: self.media_type.clone(),
            size: Some(self.size),
        };
        if self.is_image {
            Content::Image { artifact }.into()
        } else {
            Content::File { artifact }.into()
        }
    }
}

/// What a person says with files: these first, since models read them better before the question.
#[must_use]
pub fn message(text: Option<&str>, attached: &[Upload]) -> Message {
    let parts = attached.iter().map(Upload::part);
    Message::new(Role::User, parts.chain(text.map(Part::text)).collect())
}

/// Makes the files that a message attaches files of a session. `tell` is told of each. What is not
/// here any more is said in its place.
pub(crate) fn attach(
    message: &mut Message,
    data_dir: &Path,
    artifacts: &Artifacts,
    mut tell: impl FnMut(&Artifact),
) {
    for part in &mut message.content {
        let (Content::Image { artifact } | Content::File { artifact }) = &mut part.content else {
            continue;
        };
        if !artifact.id.starts_with(PREFIX) {
            continue;
        }
        match taken(&artifact.id, data_dir, artifacts) {
            Some(kept) => {
                *artifact = kept.reference();
                tell(&kept);
            }
            None => {
                part.content = Content::Text {
                    text: notes::gone(artifact),
                }
            }
        }
    }
}

fn taken(id: &str, data_dir: &Path, artifacts: &Artifacts) -> Option<Artifact> {
    let dir = dir_of(data_dir, id)?;
    let upload = about(&dir)?;
    let path = dir.join(BYTES);
    let taken = artifacts.take_over(SOURCE, &path, &upload.name, &upload.media_type);
    let taken = taken.inspect_err(|error| tracing::warn!("an attached file is lost: {error}"));
    if taken.is_ok() {
        let _ = conjure_config::fs::remove_dir_all(&dir);
    }
    taken.ok()
}

fn write(dir: &Path, upload: &Upload, bytes: &[u8]) -> std::io::Result<()> {
    conjure_config::fs::create_private_dir(dir)?;
    conjure_config::fs::write_new_private(dir.join(BYTES), bytes)?;
    // Last: what is not described was not handed over.
    let about = serde_json::to_vec(upload).map_err(std::io::Error::other)?;
    conjure_config::fs::write_new_private(dir.join(ABOUT), &about)
}

/// Where a file of this id is. An id from outside becomes no other path.
fn dir_of(data_dir: &Path, id: &str) -> Option<PathBuf> {
    let number = id.strip_prefix(PREFIX)?.parse::<uuid::Uuid>().ok()?;
    Some(data_dir.join(DIR).join(number.simple().to_string()))
}

fn about(dir: &Path) -> Option<Upload> {
    let text = conjure_config::fs::read(dir.join(ABOUT)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Removes what no turn took.
fn forget_old(all: &Path) {
    for dir in conjure_config::fs::entries(all).unwrap_or_default() {
        let changed = conjure_config::fs::changed_at(&dir);
        let age = changed.and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > KEPT) {
            let _ = conjure_config::fs::remove_dir_all(&dir);
        }
    }
}
