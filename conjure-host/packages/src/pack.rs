//! Making a package.

use std::io::{Cursor, Write as _};

use conjure_plugins::{LibraryTarget, Sha256, SkillArchive};
use conjure_skill_sdk::protocol::{Manifest, Permissions, Requires, StateScope};
use zip::write::SimpleFileOptions;

use crate::description::{FORMAT_VERSION, SKILL_FOLDER};
use crate::package::{DESCRIPTION, SIGNATURE, target_of};
use crate::{PackageDescription, PackageError, PackagedFile, PackagedLibrary, SigningKey};

/// What goes into a package.
pub struct PackageBuilder {
    manifest: Manifest,
    license: Option<String>,
    libraries: Vec<(PackagedLibrary, Vec<u8>)>,
    skill: Option<(PackagedFile, Vec<u8>)>,
    files: Vec<(PackagedFile, Vec<u8>)>,
}

impl PackageBuilder {
    /// A package of a plugin with this manifest.
    pub fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            license: None,
            libraries: Vec::new(),
            skill: None,
            files: Vec::new(),
        }
    }

    /// A package of a skill folder. `place` is what errors call it.
    ///
    /// # Errors
    /// [`PackageError::Form`] where it says no version that a package can have.
    pub fn of_skill(place: &str, skill: SkillArchive) -> Result<Self, PackageError> {
        let version = skill
            .version
            .filter(|it| semver::Version::parse(it).is_ok());
        let Some(version) = version else {
            return Err(PackageError::Form {
                location: place.to_owned(),
                reason:
                    "its SKILL.md says no semantic version, and a package has one: add `metadata:` \
                         with `version: \"1.0.0\"` to its front matter"
                        .to_owned(),
            });
        };
        let path = format!("skill/{}.skill", skill.name);
        let mut package = Self::new(Manifest {
            manifest: 1,
            kind: SKILL_FOLDER.to_owned(),
            name: skill.name,
            version,
            description: skill.description,
            requires: Requires::default(),
            capabilities: Vec::new(),
            permissions: Permissions::default(),
            config_schema: None,
            state: StateScope::default(),
            tools: Vec::new(),
            examples: Vec::new(),
        });
        package.license = skill.license;
        package.skill = Some((packaged_file(path, &skill.bytes), skill.bytes));
        Ok(package)
    }

    /// Adds the library for one machine, or the bundle of a program. `place` is what errors call it.
    ///
    /// # Errors
    /// [`PackageError::Form`] where it is none of this plugin, or one for that machine is there.
    pub fn library(&mut self, place: &str, bytes: Vec<u8>) -> Result<&str, PackageError> {
        let refused = |reason: String| PackageError::Form {
            location: place.to_owned(),
            reason,
        };
        let LibraryTarget { target, header } = target_of(&bytes).map_err(refused)?;
        let manifest = &self.manifest;
        let (found, wanted) = (
            (header.kind.as_str(), &header.name, &header.version),
            (manifest.kind.as_str(), &manifest.name, &manifest.version),
        );
        if found != wanted {
            return Err(refused(format!(
                "it is the {} {} {}, and the package is of the {} {} {}",
                found.0, found.1, found.2, wanted.0, wanted.1, wanted.2
            )));
        }
        if self
            .libraries
            .iter()
            .any(|(known, _)| known.target == target)
        {
            return Err(refused(format!("another library is for {target} too")));
        }
        let name = match LibraryTarget::is_program(&bytes) {
            true => format!("{}.plugin", header.name),
            false => {
                let suffix = match target.ends_with("darwin") {
                    true => "dylib",
                    false => "so",
                };
                format!("lib{}.{suffix}", header.name.replace('-', "_"))
            }
        };
        let library = PackagedLibrary {
            file: packaged_file(format!("lib/{target}/{name}"), &bytes),
            compiler: header.rustc,
            target,
        };
        self.libraries.push((library, bytes));
        let added = self.libraries.last();
        Ok(added.map_or("", |(library, _)| library.target.as_str()))
    }

    /// What the package says of the plugin.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Says the licence, as an SPDX expression.
    pub fn license(&mut self, expression: &str) {
        self.license = Some(expression.to_owned());
    }

    /// Adds another file.
    pub fn file(&mut self, path: &str, bytes: Vec<u8>) {
        let file = packaged_file(path.to_owned(), &bytes);
        self.files.push((file, bytes));
    }

    /// The package: the same bytes for the same contents.
    ///
    /// # Errors
    /// [`PackageError::Form`] where it would be none.
    pub fn build(mut self) -> Result<Vec<u8>, PackageError> {
        self.libraries
            .sort_by(|(one, _), (two, _)| one.target.cmp(&two.target));
        self.files
            .sort_by(|(one, _), (two, _)| one.path.cmp(&two.path));
        let description = PackageDescription {
            package: FORMAT_VERSION,
            name: self.manifest.name.clone(),
            version: self.manifest.version.clone(),
            license: self.license,
            manifest: self.manifest,
            libraries: self.libraries.iter().map(|(one, _)| one.clone()).collect(),
            skill: self.skill.as_ref().map(|(one, _)| one.clone()),
            files: self.files.iter().map(|(one, _)| one.clone()).collect(),
            signer: None,
        };
        let libraries = self.libraries.into_iter();
        let contents = libraries
            .map(|(library, bytes)| (library.file.path, bytes))
            .chain(self.skill.map(|(file, bytes)| (file.path, bytes)))
            .chain(
                self.files
                    .into_iter()
                    .map(|(file, bytes)| (file.path, bytes)),
            );
        archive(&description, None, contents.map(Ok))
    }
}

/// The archive of a package, signed where there is a key.
pub(crate) fn archive(
    description: &PackageDescription,
    key: Option<&SigningKey>,
    contents: impl Iterator<Item = Result<(String, Vec<u8>), PackageError>>,
) -> Result<Vec<u8>, PackageError> {
    let failed = |reason: String| PackageError::Form {
        location: description.id(),
        reason,
    };
    if let Some(fault) = description.fault() {
        return Err(failed(fault));
    }
    let mut text = serde_json::to_vec_pretty(description).map_err(|e| failed(e.to_string()))?;
    text.push(b'\n');
    let signature = match key {
        Some(key) => Some(key.sign(&text, &format!("plugin {}", description.id()))?),
        None => None,
    };
    let head = [(DESCRIPTION.to_owned(), text)].into_iter();
    let head = head.chain(signature.map(|text| (SIGNATURE.to_owned(), text.into_bytes())));
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        // Never the time of day.
        .last_modified_time(zip::DateTime::default());
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for file in head.map(Ok).chain(contents) {
        let (path, bytes) = file?;
        let written = archive.start_file(path, options);
        written.map_err(|error| failed(error.to_string()))?;
        let written = archive.write_all(&bytes);
        written.map_err(|error| failed(error.to_string()))?;
    }
    let archive = archive
        .finish()
        .map_err(|error| failed(error.to_string()))?;
    Ok(archive.into_inner())
}

fn packaged_file(path: String, bytes: &[u8]) -> PackagedFile {
    PackagedFile {
        path,
        sha256: Sha256::of(bytes),
        size: bytes.len() as u64,
    }
}
