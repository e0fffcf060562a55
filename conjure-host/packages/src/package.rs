//! A package, judged as a whole before any of it is used.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::{BufReader, Cursor, Read as _};
use std::path::Path;

use conjure_config::fs;
use conjure_plugins::{ANY_TARGET, LibraryTarget, LockedPlugin, Sha256, SkillArchive};
use flate2::bufread::DeflateDecoder;

use crate::archive_layout;
use crate::pack::archive;
use crate::{
    PackageDescription, PackageError, PackagedFile, PackagedLibrary, SignerKey, SigningKey,
};

/// What the name of a package's file ends with.
pub const PACKAGE_EXTENSION: &str = "conjure-plugin";

/// The most bytes of a package: 1 GiB.
pub const PACKAGE_LIMIT: u64 = 1024 * 1024 * 1024;

pub(crate) const DESCRIPTION: &str = "package.json";
pub(crate) const SIGNATURE: &str = "package.json.minisig";

/// What describes a program, the first file of its bundle, and where the name of the first file begins.
const PROGRAM: &[u8] = b"plugin.toml";
const FIRST_NAME: usize = 30;

/// The most bytes of a description.
const DESCRIPTION_LIMIT: u64 = 4 * 1024 * 1024;
/// The most bytes of a signature.
const SIGNATURE_LIMIT: u64 = 8 * 1024;
/// The most files in a package.
const MAX_FILES: usize = 128;

type Archive<'a> = zip::ZipArchive<Cursor<&'a [u8]>>;

/// A package whose every file is what its description says, and whose description is what its signer
/// signed, if anybody did.
#[derive(Debug)]
pub struct Package {
    location: String,
    bytes: Vec<u8>,
    sha256: Sha256,
    description: PackageDescription,
}

impl Package {
    /// Reads a package from a file.
    ///
    /// # Errors
    /// As [`Package::read`], and [`PackageError::Fetch`].
    pub fn open(path: &Path) -> Result<Self, PackageError> {
        let place = path.display().to_string();
        let failed = |error: std::io::Error| PackageError::Fetch {
            location: place.clone(),
            reason: error.to_string(),
        };
        if path.exists() && !path.is_file() {
            return Err(PackageError::Fetch {
                location: place,
                reason: "it is not a file".to_owned(),
            });
        }
        if conjure_plugins::is_description(path) && path.is_file() {
            return Err(PackageError::Form {
                location: place,
                reason:
                    "it describes a program and is no package; `conjure plugin add` takes it, and \
                         `conjure plugin pack` makes a package of it"
                        .to_owned(),
            });
        }
        let size = fs::size(path).map_err(failed)?;
        if size > PACKAGE_LIMIT {
            return Err(too_large(&place));
        }
        let bytes = fs::read(path).map_err(failed)?;
        Self::read(&place, bytes)
    }

    /// Judges the bytes of a package: its form, its signature if it has one, and the digest, size,
    /// machine and header of all that is in it. Runs nothing. `place` is what errors call it.
    ///
    /// # Errors
    /// [`PackageError::Form`] and [`PackageError::Signature`].
    pub fn read(place: &str, bytes: Vec<u8>) -> Result<Self, PackageError> {
        let refused = |reason: String| PackageError::Form {
            location: place.to_owned(),
            reason,
        };
        let mut archive = open_archive(&bytes).map_err(refused)?;
        let text = entry(&mut archive, DESCRIPTION, DESCRIPTION_LIMIT).map_err(refused)?;
        let description: PackageDescription = serde_json::from_slice(&text)
            .map_err(|error| refused(format!("`{DESCRIPTION}` does not describe one ({error})")))?;
        let is_signed = archive.index_for_name(SIGNATURE).is_some();
        match (&description.signer, is_signed) {
            (Some(signer), true) => {
                let signature = entry(&mut archive, SIGNATURE, SIGNATURE_LIMIT);
                let signature = String::from_utf8(signature.map_err(refused)?);
                let verified = match signature {
                    Ok(signature) => signer.verify(&text, &signature),
                    Err(error) => Err(error.to_string()),
                };
                verified.map_err(|reason| PackageError::Signature {
                    location: place.to_owned(),
                    reason,
                })?;
            }
            (None, false) => {}
            (Some(_), false) => {
                return Err(PackageError::Signature {
                    location: place.to_owned(),
                    reason: "it names a signer and has no signature".to_owned(),
                });
            }
            (None, true) => {
                return Err(PackageError::Signature {
                    location: place.to_owned(),
                    reason: "it has a signature and names no signer".to_owned(),
                });
            }
        }
        if let Some(fault) = description.fault() {
            return Err(refused(fault));
        }
        check_files(&description, &mut archive).map_err(refused)?;
        Ok(Self {
            location: place.to_owned(),
            sha256: Sha256::of(&bytes),
            bytes,
            description,
        })
    }

    /// Path or address that the package is from, for people.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The package's description of itself.
    pub fn description(&self) -> &PackageDescription {
        &self.description
    }

    /// The digest of the whole package.
    pub fn sha256(&self) -> Sha256 {
        self.sha256
    }

    /// The whole package.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key that signed the package.
    ///
    /// # Errors
    /// [`PackageError::Unsigned`].
    pub fn signer(&self) -> Result<&SignerKey, PackageError> {
        let signer = self.description.signer.as_ref();
        signer.ok_or_else(|| PackageError::Unsigned {
            location: self.location.clone(),
        })
    }

    /// The name that its file has.
    pub fn file_name(&self) -> String {
        let description = &self.description;
        format!(
            "{}-{}.{PACKAGE_EXTENSION}",
            description.name, description.version
        )
    }

    /// The archive of a skill folder, where it is one.
    ///
    /// # Errors
    /// [`PackageError::Form`].
    pub fn skill(&self) -> Result<Option<Vec<u8>>, PackageError> {
        let skill = self.description.skill.as_ref();
        skill.map(|skill| self.file(skill)).transpose()
    }

    /// The library for this machine, or the bundle of a program for any, and what the package says of it.
    ///
    /// # Errors
    /// [`PackageError::Target`] where there is none.
    pub fn local_library(&self) -> Result<(&PackagedLibrary, Vec<u8>), PackageError> {
        let here = LibraryTarget::here();
        let libraries = &self.description.libraries;
        let of = |target: &str| libraries.iter().find(|library| library.target == target);
        let Some(library) = of(&here).or_else(|| of(ANY_TARGET)) else {
            let there: Vec<&str> = libraries.iter().map(|one| one.target.as_str()).collect();
            return Err(PackageError::Target {
                location: self.location.clone(),
                here,
                there: there.join(", "),
            });
        };
        Ok((library, self.file(&library.file)?))
    }

    /// A file of the package.
    ///
    /// # Errors
    /// [`PackageError::Form`].
    pub fn file(&self, file: &PackagedFile) -> Result<Vec<u8>, PackageError> {
        let read = || contents(&mut open_archive(&self.bytes)?, file);
        read().map_err(|reason| PackageError::Form {
            location: self.location.clone(),
            reason,
        })
    }

    /// Bytes of this package signed with a key, in the place of any signature before.
    ///
    /// # Errors
    /// [`PackageError::Key`].
    pub fn signed(&self, key: &SigningKey) -> Result<Vec<u8>, PackageError> {
        let mut description = self.description.clone();
        description.signer = Some(key.public()?);
        let files = self.description.all_files();
        let contents = files.map(|file| Ok((file.path.clone(), self.file(file)?)));
        archive(&description, Some(key), contents)
    }

    /// What a lock says of it.
    pub(crate) fn lock_entry(&self, source: &str) -> LockedPlugin {
        let description = &self.description;
        let libraries = description.libraries.iter();
        LockedPlugin {
            name: description.name.clone(),
            version: description.version.clone(),
            source: source.to_owned(),
            index: None,
            sha256: self.sha256,
            signer: description.signer.as_ref().map(ToString::to_string),
            manifest: None,
            skill: description.skill.as_ref().map(|skill| skill.sha256),
            libraries: libraries
                .map(|library| (library.target.clone(), library.file.sha256))
                .collect(),
        }
    }
}

pub(crate) fn too_large(place: &str) -> PackageError {
    PackageError::Form {
        location: place.to_owned(),
        reason: format!("it has more than {PACKAGE_LIMIT} bytes"),
    }
}

fn open_archive(bytes: &[u8]) -> Result<Archive<'_>, String> {
    if let Some(what) = bare_plugin(bytes) {
        return Err(format!(
            "it is {what} and in no package; `conjure plugin add` takes that, and `conjure plugin pack` \
             makes a package of it"
        ));
    }
    archive_layout::judge(bytes, MAX_FILES)?;
    let archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| error.to_string())?;
    match archive.has_duplicate_names() {
        true => Err("it has two files of one name".to_owned()),
        false => Ok(archive),
    }
}

/// What plugin this is that lies in no package, if it is one.
fn bare_plugin(bytes: &[u8]) -> Option<&'static str> {
    if LibraryTarget::of(bytes).is_some() {
        return Some("the library of a plugin");
    }
    let first_name = bytes.get(FIRST_NAME..)?;
    let is_bundle = LibraryTarget::is_program(bytes) && first_name.starts_with(PROGRAM);
    is_bundle.then_some("the bundle of a program")
}

/// A file of an archive that has at most so many bytes.
fn entry(archive: &mut Archive<'_>, path: &str, limit: u64) -> Result<Vec<u8>, String> {
    let bytes = first_bytes(archive, path, limit + 1)?;
    match bytes.len() as u64 > limit {
        true => Err(format!("`{path}` has more than {limit} bytes")),
        false => Ok(bytes),
    }
}

/// At most so many bytes of a file of an archive, from its beginning.
fn first_bytes(archive: &mut Archive<'_>, path: &str, most: u64) -> Result<Vec<u8>, String> {
    let file = match archive.by_name(path) {
        Ok(file) => file,
        Err(zip::result::ZipError::FileNotFound) => return Err(format!("it has no `{path}`")),
        Err(error) => return Err(format!("`{path}` cannot be read: {error}")),
    };
    if !file.is_file() || file.encrypted() {
        return Err(format!("`{path}` is not a plain file"));
    }
    let mut bytes = Vec::new();
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("`{path}` cannot be read: {error}"))?;
    let is_whole = (bytes.len() as u64) < most;
    match is_whole && has_surplus(archive, path)? {
        true => Err(format!("`{path}` has bytes behind the end of its data")),
        false => Ok(bytes),
    }
}

/// Whether the compressed data of a file ends before its place in the archive does: what is behind it,
/// such as a second stream, nobody reads. To be asked of a file that was read to its end.
fn has_surplus(archive: &mut Archive<'_>, path: &str) -> Result<bool, String> {
    let failed = |error: String| format!("`{path}` cannot be read: {error}");
    let index = archive.index_for_name(path);
    let index = index.ok_or_else(|| format!("it has no `{path}`"))?;
    let file = archive.by_index_raw(index);
    let file = file.map_err(|error| failed(error.to_string()))?;
    if file.compression() != zip::CompressionMethod::Deflated {
        return Ok(false);
    }
    let size = file.compressed_size();
    let mut inflated = DeflateDecoder::new(BufReader::new(file));
    let ended = std::io::copy(&mut inflated, &mut std::io::sink());
    ended.map_err(|error| failed(error.to_string()))?;
    Ok(inflated.total_in() != size)
}

/// A file that is what the description says. No more of it is read than should be there, and one
/// byte.
fn contents(archive: &mut Archive<'_>, file: &PackagedFile) -> Result<Vec<u8>, String> {
    let other = |why: &str| format!("`{}` is not the file that it names: {why}", file.path);
    let bytes = first_bytes(archive, &file.path, file.size + 1)?;
    match (bytes.len() as u64).cmp(&file.size) {
        Ordering::Greater => return Err(other(&format!("it has more than {} bytes", file.size))),
        Ordering::Less => {
            return Err(other(&format!(
                "it has {} bytes instead of {}",
                bytes.len(),
                file.size
            )));
        }
        Ordering::Equal => {}
    }
    match Sha256::of(&bytes) == file.sha256 {
        true => Ok(bytes),
        false => Err(other("its digest is another one")),
    }
}

/// Every file that is named is there and is what it should be, and no other is there.
fn check_files(description: &PackageDescription, archive: &mut Archive<'_>) -> Result<(), String> {
    let named = description.all_files().map(|file| file.path.as_str());
    let known: HashSet<&str> = named.chain([DESCRIPTION, SIGNATURE]).collect();
    for name in archive.file_names() {
        let name = name.map_err(|error| error.to_string())?;
        if !known.contains(&*name) {
            return Err(format!("it has a file {name:?} that it does not name"));
        }
    }
    for file in &description.files {
        contents(archive, file)?;
    }
    for library in &description.libraries {
        let bytes = contents(archive, &library.file)?;
        let path = &library.file.path;
        let found = target_of(&bytes).map_err(|reason| format!("`{path}`: {reason}"))?;
        if found.target != library.target {
            return Err(format!(
                "`{path}` is for {}, and it says {}",
                found.target, library.target
            ));
        }
        let header = &found.header;
        let manifest = &description.manifest;
        if (header.kind.as_str(), &header.name, &header.version)
            != (&manifest.kind, &description.name, &description.version)
        {
            return Err(format!(
                "`{path}` is the {} {} {}, and the package is of the {} {}",
                header.kind.as_str(),
                header.name,
                header.version,
                manifest.kind,
                description.id()
            ));
        }
    }
    if let Some(skill) = &description.skill {
        let bytes = contents(archive, skill)?;
        check_skill(description, &bytes).map_err(|reason| format!("`{}`: {reason}", skill.path))?;
    }
    Ok(())
}

/// Whether an archive is the skill folder that a description says it is.
fn check_skill(description: &PackageDescription, bytes: &[u8]) -> Result<(), String> {
    let skill = SkillArchive::judge(bytes).map_err(|error| error.to_string())?;
    let manifest = &description.manifest;
    let is_it = skill.name == description.name
        && skill.version.as_deref() == Some(&description.version)
        && skill.description == manifest.description;
    match is_it {
        true => Ok(()),
        false => Err(format!(
            "its SKILL.md says {} {}, and the package another name, version or description",
            skill.name,
            skill.version.unwrap_or_default()
        )),
    }
}

/// Reads the target and the header of a library or of a program's bundle.
pub(crate) fn target_of(bytes: &[u8]) -> Result<LibraryTarget, String> {
    if LibraryTarget::is_program(bytes) {
        return LibraryTarget::of_program(bytes).map_err(|error| error.to_string());
    }
    let library = LibraryTarget::of(bytes);
    library.ok_or_else(|| "it is no library of a plugin".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_no_package_is_called_what_it_is() {
        let head = [b"PK\x03\x04".as_slice(), &[0; 26]].concat();
        let bundle = [head.as_slice(), b"plugin.toml and more"].concat();
        let error = open_archive(&bundle).unwrap_err();
        assert!(error.contains("conjure plugin add"), "{error}");
        let other = [head.as_slice(), b"package.json and more"].concat();
        let error = open_archive(&other).unwrap_err();
        assert!(!error.contains("conjure plugin add"), "{error}");
    }

    #[test]
    fn of_two_files_of_one_name_none_is_read() {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for name in [DESCRIPTION, "package.jsom"] {
            let options = zip::write::SimpleFileOptions::default();
            archive.start_file(name, options).unwrap();
        }
        let mut bytes = archive.finish().unwrap().into_inner();
        assert_eq!(open_archive(&bytes).err(), None);
        let other = b"package.jsom";
        while let Some(at) = bytes.windows(other.len()).position(|part| part == other) {
            bytes[at..at + other.len()].copy_from_slice(DESCRIPTION.as_bytes());
        }
        let error = open_archive(&bytes).unwrap_err();
        assert!(error.contains("two files of one name"), "{error}");
    }

    #[test]
    fn the_description_of_a_program_is_no_package() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugin.toml");
        fs::write(&path, "plugin = 1").unwrap();
        let error = Package::open(&path).unwrap_err().to_string();
        assert!(error.contains("conjure plugin add"), "{error}");
    }
}
