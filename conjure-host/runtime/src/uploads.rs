//! Files that a person hands over, until the turn begins that they are attached to: then they are
//! files of its thread.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use conjure_core::chat::media_type::is_image;
use conjure_core::chat::{ArtifactRef, Content, Message, Part, Role};
use conjure_core::context::notes;
use conjure_core::log::{LossReason, LostFile};
use conjure_core::request::MAX_MEDIA_BYTES;
use serde::{Deserialize, Serialize};

use crate::artifacts::{Artifact, Artifacts, is_lookable, media_type_of, safe_name};

/// The most bytes of a file that is handed over.
pub const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The most files that a turn attaches over HTTP.
pub const MOST_ATTACHED: usize = 20;
/// The source of files that a person attached.
pub const SOURCE: &str = "person";
/// How long a file is kept that no turn takes.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one is kept whose turn waits and has not begun.
const CLAIMED_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What the id of a file begins with that no thread has yet.
const PREFIX: &str = "upload-";
/// Where these are, below the host's data.
const DIR: &str = "uploads";
/// What is known of a file, beside it.
const METADATA_FILE: &str = "upload.json";
/// Where its bytes are; its name may be any.
const BYTES: &str = "bytes";
/// The id of the turn that it is attached to, beside it.
const TURN: &str = "turn";

/// How files are received over HTTP that are whole in memory, such as exports and plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveLimits {
    /// The most bytes of a file.
    pub most_bytes: usize,
    /// Files that are received at the same time.
    pub at_once: usize,
    /// How long a file waits for its turn while others are received.
    pub queue_timeout: Duration,
    /// How long a file may take to arrive.
    pub arrival_timeout: Duration,
}

/// A file that a person handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Id that a turn names it by, `upload-` and letters.
    pub id: String,
    /// Name of the file, one component of a path.
    pub name: String,
    /// Media type by its bytes, else by what its sender says, else by its name.
    pub media_type: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether a model that can look at images is shown it as one.
    pub is_image: bool,
}

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The file is empty.
    #[error("`{name}` is empty: there is nothing to attach")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// The file is too large.
    #[error(
        "`{name}` has {size} bytes; a file that is attached may have {MOST_BYTES}. Put it into the session's working directory, where tools read it"
    )]
    TooLarge {
        /// Name of the file.
        name: String,
        /// Size in bytes.
        size: u64,
    },
    /// No upload has this id.
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
        /// Name of the file.
        name: String,
        /// What the system said.
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
    let is_image = is_image(&media_type) && size <= MAX_MEDIA_BYTES && is_lookable(bytes);
    let number = uuid::Uuid::now_v7().simple();
    let upload = Upload {
        id: format!("{PREFIX}{number}"),
        name,
        media_type,
        size,
        is_image,
    };
    let all = data_dir.join(DIR);
    remove_expired(&all, SystemTime::now());
    match write(&all.join(number.to_string()), &upload, bytes) {
        Ok(()) => Ok(upload),
        Err(source) => Err(UploadError::Disk {
            name: upload.name,
            source,
        }),
    }
}

/// A file that waits for a turn, or is attached to this one.
pub(crate) fn find(data_dir: &Path, id: &str, turn: Option<&str>) -> Result<Upload, UploadError> {
    let dir = dir_of(data_dir, id);
    let dir = dir.filter(|dir| turn_of(dir).is_none_or(|its| Some(its.as_str()) == turn));
    let found = dir.and_then(|dir| read_metadata(&dir));
    found.ok_or_else(|| UploadError::Unknown { id: id.to_owned() })
}

/// Makes the files that a message attaches the turn's, so that no other takes them. Those that were
/// no turn's before.
///
/// # Errors
/// [`UploadError::Unknown`] where one is another turn's or not here, and [`UploadError::Disk`]; none
/// is the turn's then that was not before.
pub(crate) fn claim(
    data_dir: &Path,
    turn: &str,
    message: &Message,
) -> Result<Vec<String>, UploadError> {
    let mut claimed = Vec::new();
    for id in attached_ids(message) {
        match claim_one(data_dir, turn, id) {
            Ok(true) => claimed.push(id.to_owned()),
            Ok(false) => {}
            Err(error) => {
                free(data_dir, turn, claimed.iter().map(String::as_str));
                return Err(error);
            }
        }
    }
    Ok(claimed)
}

fn claim_one(data_dir: &Path, turn: &str, id: &str) -> Result<bool, UploadError> {
    let upload = find(data_dir, id, Some(turn))?;
    let Some(dir) = dir_of(data_dir, id) else {
        return Err(UploadError::Unknown { id: id.to_owned() });
    };
    match conjure_config::fs::write_new_private(dir.join(TURN), turn.as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            find(data_dir, id, Some(turn)).map(|_| false)
        }
        Err(source) => Err(UploadError::Disk {
            name: upload.name,
            source,
        }),
    }
}

/// Gives files back that were a turn's which never begins.
pub(crate) fn free<'a>(data_dir: &Path, turn: &str, ids: impl Iterator<Item = &'a str>) {
    for dir in ids.filter_map(|id| dir_of(data_dir, id)) {
        if turn_of(&dir).is_some_and(|its| its == turn) {
            conjure_config::fs::remove_file(dir.join(TURN));
        }
    }
}

/// The ids of the files that a message attaches and no thread has yet.
pub(crate) fn attached_ids(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|part| {
        let (Content::Image { artifact } | Content::File { artifact }) = &part.content else {
            return None;
        };
        artifact.id.starts_with(PREFIX).then_some(&*artifact.id)
    })
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

/// Makes the files that a message attaches in a turn files of its session. `tell` is told of each.
/// What cannot be had is said in its place, and is given back for the person.
pub(crate) fn attach(
    turn: &str,
    message: &mut Message,
    data_dir: &Path,
    artifacts: &Artifacts,
    mut tell: impl FnMut(&Artifact),
) -> Vec<LostFile> {
    let mut lost = Vec::new();
    for part in &mut message.content {
        let (Content::Image { artifact } | Content::File { artifact }) = &mut part.content else {
            continue;
        };
        if !artifact.id.starts_with(PREFIX) {
            continue;
        }
        match move_to_artifacts(turn, &artifact.id, data_dir, artifacts) {
            Ok(kept) => {
                *artifact = kept.reference();
                tell(&kept);
            }
            Err(reason) => {
                lost.push(LostFile {
                    name: artifact.name.clone(),
                    reason,
                });
                part.content = Content::Text {
                    text: notes::missing_file(artifact),
                }
            }
        }
    }
    lost
}

fn move_to_artifacts(
    turn: &str,
    id: &str,
    data_dir: &Path,
    artifacts: &Artifacts,
) -> Result<Artifact, LossReason> {
    let known = dir_of(data_dir, id).and_then(|dir| Some((read_metadata(&dir)?, dir)));
    let (upload, dir) = known.ok_or(LossReason::NoBytes)?;
    if turn_of(&dir).is_some_and(|its| its != turn) {
        return Err(LossReason::OtherTurn);
    }
    let path = dir.join(BYTES);
    let taken = artifacts.take_over(SOURCE, &path, &upload.name, &upload.media_type);
    let taken = taken.map_err(|error| {
        tracing::warn!("an attached file is lost: {error}");
        LossReason::Failed {
            error: error.to_string(),
        }
    })?;
    let _ = conjure_config::fs::remove_dir_all(&dir);
    Ok(taken)
}

fn write(dir: &Path, upload: &Upload, bytes: &[u8]) -> std::io::Result<()> {
    conjure_config::fs::create_private_dir(dir)?;
    conjure_config::fs::write_new_private(dir.join(BYTES), bytes)?;
    // Last: what is not described was not handed over.
    let about = serde_json::to_vec(upload).map_err(std::io::Error::other)?;
    conjure_config::fs::write_new_private(dir.join(METADATA_FILE), &about)
}

/// Where a file of this id is. An id from outside becomes no other path.
fn dir_of(data_dir: &Path, id: &str) -> Option<PathBuf> {
    let number = id.strip_prefix(PREFIX)?.parse::<uuid::Uuid>().ok()?;
    Some(data_dir.join(DIR).join(number.simple().to_string()))
}

/// The turn that a file is attached to, if it is.
fn turn_of(dir: &Path) -> Option<String> {
    conjure_config::fs::read_to_string(dir.join(TURN)).ok()
}

fn read_metadata(dir: &Path) -> Option<Upload> {
    let text = conjure_config::fs::read(dir.join(METADATA_FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Removes what no turn took, and what waited for one for too long.
fn remove_expired(all: &Path, now: SystemTime) {
    for dir in conjure_config::fs::entries(all).unwrap_or_default() {
        let changed = conjure_config::fs::changed_at(&dir);
        let age = changed.and_then(|at| now.duration_since(at).ok());
        let kept = match turn_of(&dir) {
            Some(_) => CLAIMED_RETENTION,
            None => RETENTION,
        };
        if age.is_some_and(|age| age > kept) {
            let _ = conjure_config::fs::remove_dir_all(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_turns_until_that_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path();
        let kept = |name| keep(data_dir, name, None, b"lamp").unwrap();
        let (one, two) = (kept("one.txt"), kept("two.txt"));
        let both = message(None, &[two.clone(), one.clone()]);
        let first = message(Some("Look"), std::slice::from_ref(&one));
        let ids = [one.id.clone()];
        assert_eq!(claim(data_dir, "a", &first).unwrap(), ids);
        assert_eq!(claim(data_dir, "a", &first).unwrap(), [""; 0], "it has it");
        claim(data_dir, "b", &both).unwrap_err();
        assert!(find(data_dir, &two.id, None).is_ok(), "b has neither");
        assert!(find(data_dir, &one.id, None).is_err());
        assert_eq!(find(data_dir, &one.id, Some("a")).unwrap(), one);
        // Only its own turn gives it back.
        free(data_dir, "b", attached_ids(&both));
        assert!(find(data_dir, &one.id, None).is_err());
        free(data_dir, "a", attached_ids(&first));
        assert_eq!(claim(data_dir, "b", &both).unwrap().len(), 2);
    }

    #[test]
    fn a_file_whose_turn_waits_is_kept_for_longer_than_one_that_nobody_took() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path();
        let kept = |name| keep(data_dir, name, None, b"lamp").unwrap();
        let (free, claimed) = (kept("free.txt"), kept("claimed.txt"));
        let waits = message(None, std::slice::from_ref(&claimed));
        claim(data_dir, "a", &waits).unwrap();
        let later = |age| remove_expired(&data_dir.join(DIR), SystemTime::now() + age);
        later(RETENTION + Duration::from_secs(60));
        assert!(find(data_dir, &free.id, None).is_err());
        assert_eq!(find(data_dir, &claimed.id, Some("a")).unwrap(), claimed);
        later(CLAIMED_RETENTION + Duration::from_secs(60));
        assert!(find(data_dir, &claimed.id, Some("a")).is_err());
    }

    #[test]
    fn a_turn_takes_no_file_that_is_another_turns() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path();
        let one = keep(data_dir, "one.txt", None, b"lamp").unwrap();
        let said = message(None, std::slice::from_ref(&one));
        claim(data_dir, "a", &said).unwrap();
        let artifacts = Artifacts::new(vec![data_dir.join("work")], data_dir.join("cache"));
        let mut other = said.clone();
        let lost = |name: &str, reason| {
            let name = name.to_owned();
            [LostFile { name, reason }]
        };
        assert_eq!(
            attach("b", &mut other, data_dir, &artifacts, |_| ()),
            lost("one.txt", LossReason::OtherTurn)
        );
        assert_eq!(find(data_dir, &one.id, Some("a")).unwrap(), one);
        let mut its = said.clone();
        assert_eq!(attach("a", &mut its, data_dir, &artifacts, |_| ()), []);
        let mut again = said;
        assert_eq!(
            attach("a", &mut again, data_dir, &artifacts, |_| ()),
            lost("one.txt", LossReason::NoBytes)
        );
    }
}
