//! Indexes of packages: a text file that anybody can host, a line of JSON for each package.

use std::path::{Path, PathBuf};

use async_recursion::async_recursion as boxed;
use conjure_config::fs;
use conjure_plugins::{ANY_TARGET, Sha256};
use reqwest::Url;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::{Package, PackageError, SignerKey, http};

/// The name of an index's file.
pub const INDEX_FILE: &str = "index.jsonl";

/// The most bytes of an index: 64 MiB, some hundred thousand packages.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;

/// The most characters that are told of what is wrong with a line.
const MAX_FAULT_CHARS: usize = 200;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A package in an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// `skill`, `executor`, `backend`, or `skill-folder`.
    pub kind: String,
    /// One or two sentences.
    #[serde(default)]
    pub description: String,
    /// The licence, an SPDX expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The machines that it has libraries for.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Where the package is: an address, or a name beside the index.
    pub package: String,
    /// The digest of the package.
    pub sha256: Sha256,
    /// The package's bytes.
    pub size: u64,
    /// Key that signed the package; `None` where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<SignerKey>,
}

impl IndexEntry {
    fn of(package: &Package, place: String) -> Self {
        let description = package.description();
        let libraries = description.libraries.iter();
        Self {
            name: description.name.clone(),
            version: description.version.clone(),
            kind: description.manifest.kind.clone(),
            description: description.manifest.description.clone(),
            license: description.license.clone(),
            targets: match description.skill.is_some() {
                true => vec![ANY_TARGET.to_owned()],
                false => libraries.map(|library| library.target.clone()).collect(),
            },
            package: place,
            sha256: package.sha256(),
            size: package.bytes().len() as u64,
            signer: description.signer.clone(),
        }
    }

    fn has_all(&self, words: &[String]) -> bool {
        let text = format!("{} {} {}", self.name, self.description, self.kind).to_lowercase();
        words.iter().all(|word| text.contains(word))
    }
}

/// An index.
#[derive(Debug)]
pub struct PluginIndex {
    location: IndexLocation,
    entries: Vec<IndexEntry>,
    /// The lines that name no package.
    faults: LineFaults,
}

/// Lines of an index that name no package.
#[derive(Debug, Default)]
struct LineFaults {
    /// What is wrong with the first one.
    first: Option<String>,
    count: usize,
}

#[derive(Debug)]
enum IndexLocation {
    File(PathBuf),
    Address(Url),
}

impl PluginIndex {
    /// Reads an index: a file, a folder with one, or an address of either.
    ///
    /// # Errors
    /// [`PackageError::Fetch`] and [`PackageError::Index`].
    #[boxed]
    pub async fn read(place: &str) -> Result<Self, PackageError> {
        let is_address = place.starts_with("http://") || place.starts_with("https://");
        let (place, bytes) = match is_address {
            true => {
                let url = index_url(place)?;
                let bytes = http::get(&url, MAX_INDEX_BYTES).await?;
                (IndexLocation::Address(url), bytes)
            }
            false => {
                let mut path = PathBuf::from(place);
                if path.is_dir() {
                    path.push(INDEX_FILE);
                }
                let failed = |reason: String| PackageError::Fetch {
                    location: path.display().to_string(),
                    reason,
                };
                let is_other = path.exists() && !path.is_file();
                if is_other || fs::size(&path).is_ok_and(|size| size > MAX_INDEX_BYTES) {
                    return Err(failed(format!(
                        "it is no file of at most {MAX_INDEX_BYTES} bytes"
                    )));
                }
                let bytes = fs::read(&path).map_err(|error| failed(error.to_string()))?;
                (IndexLocation::File(path), bytes)
            }
        };
        let (entries, faults) = parse_lines(&bytes);
        let index = Self {
            location: place,
            entries,
            faults,
        };
        match (index.entries.is_empty(), index.left_out()) {
            (true, Some(error)) => Err(error),
            _ => Ok(index),
        }
    }

    /// The error about lines that were left out since they name no package; `None` where all were read.
    pub fn left_out(&self) -> Option<PackageError> {
        let first = self.faults.first.as_deref()?;
        let more = match self.faults.count {
            ..=1 => String::new(),
            count => format!(", and {} others do not either", count - 1),
        };
        Some(PackageError::Index {
            location: self.location.to_string(),
            reason: format!("{first}{more}"),
        })
    }

    /// The newest version of each plugin whose name, description and kind have all of the words, in
    /// the order of names.
    pub fn search(&self, words: &[String]) -> Vec<&IndexEntry> {
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        let mut found: Vec<&IndexEntry> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.has_all(&words)) {
            let newest = self.find(&entry.name, None);
            let is_new = found.iter().all(|known| known.name != entry.name);
            found.extend(newest.filter(|_| is_new));
        }
        found.sort_by(|one, two| one.name.cmp(&two.name));
        found
    }

    /// A version of a plugin; without one the newest.
    pub fn find(&self, name: &str, version: Option<&str>) -> Option<&IndexEntry> {
        let mut named = self.entries.iter().filter(|entry| entry.name == name);
        let version = match version {
            Some(version) => version,
            None => newest(named.clone().map(|entry| entry.version.as_str()))?,
        };
        named.find(|entry| entry.version == version)
    }

    /// The newest version of a plugin that is newer than one.
    pub(crate) fn newer(&self, name: &str, than: &str) -> Option<&str> {
        let named = self.entries.iter().filter(|entry| entry.name == name);
        newer(named.map(|entry| entry.version.as_str()), than)
    }

    /// Where the package of an entry is, for [`PackageSource`](crate::PackageSource) to read.
    ///
    /// # Errors
    /// [`PackageError::Index`] where it leads out of what an index may name.
    pub(crate) fn package_location(&self, entry: &IndexEntry) -> Result<String, PackageError> {
        let named = entry.package.as_str();
        let refused = || PackageError::Index {
            location: self.location.to_string(),
            reason: format!("its package of {} is at {named:?}", entry.name),
        };
        if named.starts_with("https://") || named.starts_with("oci://") {
            return Ok(named.to_owned());
        }
        match &self.location {
            IndexLocation::Address(url) => {
                let joined = url.join(named).map_err(|_| refused())?;
                let is_beside = joined.origin() == url.origin();
                is_beside.then(|| joined.to_string()).ok_or_else(refused)
            }
            IndexLocation::File(path) => {
                let is_name = Path::new(named).components().count() == 1
                    && Path::new(named).file_name() == Some(named.as_ref());
                let beside = path.with_file_name(named);
                is_name
                    .then(|| beside.display().to_string())
                    .ok_or_else(refused)
            }
        }
    }

    /// Path or address of the index, for people.
    pub fn location(&self) -> String {
        self.location.to_string()
    }

    /// Puts a package into a folder and names it in the index there, in the place of one of the same
    /// name and version. The file of another package is not replaced.
    ///
    /// # Errors
    /// [`PackageError::Publish`], and [`PackageError::Index`] of an index that is none.
    pub(crate) fn publish(dir: &Path, package: &Package) -> Result<PathBuf, PackageError> {
        let failed = |error: std::io::Error| PackageError::Publish {
            location: dir.display().to_string(),
            reason: error.to_string(),
        };
        // From before the index is read until it is written.
        let _lock = fs::lock_dir(dir).map_err(|error| PackageError::Publish {
            location: dir.display().to_string(),
            reason: format!(
                "nobody can be kept from changing its index at the same time ({error}). Make sure that you \
                 may write there; where the file system has no locks, publish into a folder of another one \
                 and copy what is there by then"
            ),
        })?;
        let index = dir.join(INDEX_FILE);
        let text = match fs::read(&index) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let (mut entries, faults) = parse_lines(&text);
        if let Some(first) = faults.first {
            // It is written as a whole, and what is not understood would be lost.
            return Err(PackageError::Index {
                location: index.display().to_string(),
                reason: first,
            });
        }
        let path = dir.join(package.file_name());
        let entry = IndexEntry::of(package, package.file_name());
        let taken = |reason: String| {
            Err(PackageError::Publish {
                location: dir.display().to_string(),
                reason,
            })
        };
        let is_same =
            |known: &IndexEntry| (&known.name, &known.version) == (&entry.name, &entry.version);
        if let Some(known) = entries.iter().find(|known| is_same(known))
            && known.sha256 != entry.sha256
        {
            return taken(format!(
                "it has another package of {} {}, which locks of others may name; give this one \
                 another version",
                known.name, known.version
            ));
        }
        // `a` 1.0.0-b and `a-1.0.0` b have one file name.
        let mut others = entries.iter().filter(|known| !is_same(known));
        if let Some(other) = others.find(|known| known.package == entry.package) {
            return taken(format!(
                "its file {} is the package of {} {}; give this one another name or version",
                entry.package, other.name, other.version
            ));
        }
        let is_known = entries.iter().any(is_same);
        if !is_known && path.exists() && fs::read(&path).map_err(failed)? != package.bytes() {
            return taken(format!(
                "it has a file {} with other contents; move that away if nothing names it",
                entry.package
            ));
        }
        entries.retain(|known| (&known.name, &known.version) != (&entry.name, &entry.version));
        entries.push(entry);
        // Whoever may read and write the one may the others, whatever the mask of who publishes says.
        fs::write_atomic_like(&path, package.bytes(), &index).map_err(failed)?;
        entries.sort_by(|one, two| {
            let version = |entry: &IndexEntry| Version::parse(&entry.version).ok();
            (&one.name, version(one)).cmp(&(&two.name, version(two)))
        });
        let mut text = String::new();
        for entry in &entries {
            let line = serde_json::to_string(entry).map_err(|error| failed(error.into()))?;
            text.push_str(&line);
            text.push('\n');
        }
        fs::write_atomic_like(&index, text.as_bytes(), &index).map_err(failed)?;
        Ok(path)
    }
}

impl std::fmt::Display for IndexLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Address(url) => f.write_str(&http::redacted_url(url)),
        }
    }
}

fn index_url(place: &str) -> Result<Url, PackageError> {
    let whole = match place.ends_with(".jsonl") {
        true => place.to_owned(),
        false => format!("{}/{INDEX_FILE}", place.trim_end_matches('/')),
    };
    Url::parse(&whole).map_err(|error| PackageError::Fetch {
        location: http::redacted_text(place),
        reason: format!("it is no address ({error})"),
    })
}

/// The packages that the lines of an index name, and which lines name none.
fn parse_lines(bytes: &[u8]) -> (Vec<IndexEntry>, LineFaults) {
    // Some editors write one in front of a text.
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let (mut entries, mut faults) = (Vec::new(), LineFaults::default());
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                faults.count += 1;
                faults.first.get_or_insert_with(|| {
                    // It may quote what is there, whatever its length.
                    let why: String = error.to_string().chars().take(MAX_FAULT_CHARS).collect();
                    format!("its line {} does not name a package ({why})", number + 1)
                });
            }
        }
    }
    (entries, faults)
}

/// The newest of some versions; one before a release only where there is no release.
pub(crate) fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let versions = versions.filter_map(|text| Some((Version::parse(text).ok()?, text)));
    let newest = versions.max_by(|(one, _), (two, _)| {
        let is_release = |version: &Version| version.pre.is_empty();
        (is_release(one).cmp(&is_release(two))).then(one.cmp_precedence(two))
    });
    newest.map(|(_, text)| text)
}

/// The newest of some versions that is newer than one: whoever has a release is offered releases.
pub(crate) fn newer<'a>(versions: impl Iterator<Item = &'a str>, than: &str) -> Option<&'a str> {
    let than = Version::parse(than).ok()?;
    let versions = versions.filter_map(|text| Some((Version::parse(text).ok()?, text)));
    let newer = versions.filter(|(version, _)| {
        let is_offered = version.pre.is_empty() || !than.pre.is_empty();
        is_offered && version.cmp_precedence(&than).is_gt()
    });
    let newest = newer.max_by(|(one, _), (two, _)| one.cmp_precedence(two));
    newest.map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_a_release_where_there_is_one() {
        let all = ["1.2.0", "1.10.0", "2.0.0-rc.1", "x", "1.9.0", "2.0.0-rc.2"];
        assert_eq!(newest(all.into_iter()), Some("1.10.0"));
        assert_eq!(newest(["2.0.0-rc.1"].into_iter()), Some("2.0.0-rc.1"));
        assert_eq!(newer(all.into_iter(), "1.9.0"), Some("1.10.0"));
        assert_eq!(newer(all.into_iter(), "1.10.0"), None);
        assert_eq!(newer(all.into_iter(), "2.0.0-rc.1"), Some("2.0.0-rc.2"));
        assert_eq!(newer(["1.0.0+b"].into_iter(), "1.0.0+a"), None);
    }

    #[test]
    fn what_is_no_index_is_called_one_that_cannot_be_used() {
        let read = |text: &[u8]| {
            let (entries, faults) = parse_lines(text);
            let place = IndexLocation::File(PathBuf::from("i"));
            PluginIndex {
                location: place,
                entries,
                faults,
            }
        };
        let empty = read(b"\xef\xbb\xbf\n");
        assert!(empty.entries.is_empty() && empty.left_out().is_none());
        let error = read(b"what\n\nmore\n").left_out().unwrap().to_string();
        assert!(error.contains("not an index"), "{error}");
        assert!(error.contains("its line 1 does not name"), "{error}");
        assert!(error.contains("1 others"), "{error}");
    }

    #[test]
    fn an_index_shows_no_password() {
        let place = IndexLocation::Address(index_url("https://ada:secret@h.example/d").unwrap());
        assert_eq!(place.to_string(), "https://h.example/d/index.jsonl");
    }

    #[test]
    fn an_index_leads_nowhere_else() {
        let entry = |package: &str| IndexEntry {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            kind: "skill".to_owned(),
            description: String::new(),
            license: None,
            targets: Vec::new(),
            package: package.to_owned(),
            sha256: Sha256::of(b""),
            size: 0,
            signer: None,
        };
        let file = PluginIndex {
            location: IndexLocation::File(PathBuf::from("/srv/index.jsonl")),
            entries: Vec::new(),
            faults: LineFaults::default(),
        };
        assert_eq!(
            file.package_location(&entry("a.conjure-plugin")).unwrap(),
            "/srv/a.conjure-plugin"
        );
        for other in [
            "../a",
            "/etc/a",
            "b/../a",
            "",
            "http://elsewhere.example/a",
            "file:///a",
        ] {
            file.package_location(&entry(other)).unwrap_err();
        }
        let web = PluginIndex {
            location: IndexLocation::Address(
                Url::parse("http://127.0.0.1:1/d/index.jsonl").unwrap(),
            ),
            entries: Vec::new(),
            faults: LineFaults::default(),
        };
        assert_eq!(
            web.package_location(&entry("a")).unwrap(),
            "http://127.0.0.1:1/d/a"
        );
        assert_eq!(
            web.package_location(&entry("https://x.example/a")).unwrap(),
            "https://x.example/a"
        );
        for other in [
            "http://127.0.0.1:2/a",
            "file:///etc/passwd",
            "http://elsewhere.example/a",
        ] {
            web.package_location(&entry(other)).unwrap_err();
        }
    }
}
