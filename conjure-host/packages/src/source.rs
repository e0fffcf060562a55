//! Where packages come from and go to.

use std::path::{Component, Path, PathBuf};

use async_recursion::async_recursion as boxed;
use conjure_plugins::{LockedPlugin, Sha256};
use reqwest::Url;

use crate::http;
use crate::oci::{self, RegistryReference};
use crate::{IndexEntry, PACKAGE_EXTENSION, PACKAGE_LIMIT, Package, PackageError, PluginIndex};

/// Where a package is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageSource {
    /// A file.
    File(PathBuf),
    /// An address.
    Address(Url),
    /// A registry of container images.
    Registry(RegistryReference),
    /// A name that an index has.
    Indexed {
        /// The plugin.
        name: String,
        /// Version of the plugin; without one the newest.
        version: Option<String>,
    },
}

/// A package that was fetched.
#[derive(Debug)]
pub struct FetchedPackage {
    /// The package itself, read and checked.
    pub package: Package,
    /// Exact place of the package, in the form that [`PackageSource::read`] reads: with the version, and
    /// in a registry with the digest of what its tag led to.
    pub source: String,
    /// The index that named it.
    pub index: Option<String>,
    /// Why indexes before that one could not be read as a whole: they may have named another one.
    pub index_errors: Vec<PackageError>,
    /// What of that index was left out.
    pub left_out: Option<PackageError>,
}

/// What is newer than a version, and where it was not looked.
#[derive(Debug)]
pub struct NewerPackage {
    /// Place of the newer package, or of what may be one; `None` where there is none.
    pub source: Option<PackageSource>,
    /// Why indexes could not be read as a whole that go before the one that names the plugin.
    pub unread: Vec<PackageError>,
}

impl PackageSource {
    /// Reads `oci://…`, `http://…`, `https://…`, a path, or `NAME[@VERSION]` of an index.
    ///
    /// # Errors
    /// [`PackageError::Fetch`] where it is none of these.
    pub fn read(text: &str) -> Result<Self, PackageError> {
        if text.starts_with(oci::SCHEME) {
            return RegistryReference::read(text).map(Self::Registry);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let url = Url::parse(text).map_err(|error| PackageError::Fetch {
                location: http::redacted_text(text),
                reason: format!("it is no address ({error})"),
            })?;
            return Ok(Self::Address(url));
        }
        let is_path = text.contains('/')
            || text.ends_with(&format!(".{PACKAGE_EXTENSION}"))
            || Path::new(text).is_file();
        if is_path {
            return Ok(Self::File(PathBuf::from(text)));
        }
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (text, None),
        };
        Ok(Self::Indexed {
            name: name.to_owned(),
            version,
        })
    }

    /// Fetches it; a name is looked up in these indexes, in their order.
    ///
    /// # Errors
    /// [`PackageError`].
    #[boxed]
    pub async fn fetch(&self, indexes: &[String]) -> Result<FetchedPackage, PackageError> {
        let (package, source) = match self {
            Self::File(path) => (Package::open(path)?, absolute_path(path)),
            Self::Address(url) => (fetch_url(url).await?, self.to_string()),
            Self::Registry(place) => {
                let place = Box::pin(place.resolve_version()).await?;
                let (package, place) = Box::pin(place.fetch()).await?;
                (package, place.to_string())
            }
            Self::Indexed { name, version } => {
                return Box::pin(fetch_indexed(name, version.as_deref(), indexes)).await;
            }
        };
        Ok(FetchedPackage {
            package,
            source,
            index: None,
            index_errors: Vec::new(),
            left_out: None,
        })
    }

    /// Fetches what a lock names: as [`PackageSource::fetch`], and where a registry has no manifest of the
    /// digest any more what its tag leads to, if that is the package with the digest `wanted`.
    ///
    /// # Errors
    /// [`PackageError`].
    #[boxed]
    pub async fn fetch_locked(
        &self,
        indexes: &[String],
        wanted: &Sha256,
    ) -> Result<FetchedPackage, PackageError> {
        let (place, reason) = match Box::pin(self.fetch(indexes)).await {
            Err(PackageError::Fetch { location, reason }) => (location, reason),
            found => return found,
        };
        let tagged = match self {
            Self::Registry(place) => place.by_tag(),
            _ => None,
        };
        let Some(tagged) = tagged else {
            return Err(PackageError::Fetch {
                location: place,
                reason,
            });
        };
        let shown = tagged.to_string();
        let what = match Box::pin(Self::Registry(tagged).fetch(indexes)).await {
            Ok(found) if found.check_digest(wanted).is_ok() => return Ok(found),
            Ok(_) => "is another package than the lock names",
            Err(_) => "cannot be had either",
        };
        let reason = format!("{reason}; what {shown} leads to {what}");
        Err(PackageError::Fetch {
            location: place,
            reason,
        })
    }

    /// Where a newer version than this one is, as far as that can be known before it is fetched. An index
    /// that cannot be read holds up no other.
    ///
    /// # Errors
    /// [`PackageError`].
    #[boxed]
    pub async fn newer(
        &self,
        version: &str,
        indexes: &[String],
    ) -> Result<NewerPackage, PackageError> {
        let source = match self {
            // What is there now may be another one.
            Self::File(_) | Self::Address(_) => Some(self.clone()),
            Self::Registry(place) => place.newer(version).await?.map(Self::Registry),
            Self::Indexed { name, .. } => {
                let found = look_up(indexes, name, |index| {
                    let newest = index.newer(name, version).map(str::to_owned);
                    index.find(name, None).map(|_| newest)
                });
                let (newest, (_, index), mut unread) = found.await?;
                if newest.is_none() {
                    // What was left out may be a newer one.
                    unread.extend(index.left_out());
                }
                let source = newest.map(|newest| Self::Indexed {
                    name: name.clone(),
                    version: Some(newest),
                });
                return Ok(NewerPackage { source, unread });
            }
        };
        Ok(NewerPackage {
            source,
            unread: Vec::new(),
        })
    }
}

impl std::fmt::Display for PackageSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Address(url) => f.write_str(&http::redacted_url(url)),
            Self::Registry(place) => place.fmt(f),
            Self::Indexed { name, version } => match version {
                Some(version) => write!(f, "{name}@{version}"),
                None => f.write_str(name),
            },
        }
    }
}

async fn fetch_url(url: &Url) -> Result<Package, PackageError> {
    let bytes = http::get(url, PACKAGE_LIMIT).await?;
    Package::read(&http::redacted_url(url), bytes)
}

/// The package of the first index that names it.
async fn fetch_indexed(
    name: &str,
    version: Option<&str>,
    indexes: &[String],
) -> Result<FetchedPackage, PackageError> {
    let wanted = match version {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    };
    let found = look_up(indexes, &wanted, |index| index.find(name, version).cloned());
    let (entry, (place, index), unread) = found.await?;
    let found = fetch_entry(&index, &place, &entry).await?;
    Ok(FetchedPackage {
        index_errors: unread,
        left_out: index.left_out(),
        ..found
    })
}

/// What the first index says that says something, that index with how it was named, and why those before
/// it could not be read as a whole. One that cannot be read holds up no other.
async fn look_up<T>(
    indexes: &[String],
    wanted: &str,
    find: impl Fn(&PluginIndex) -> Option<T>,
) -> Result<(T, (String, PluginIndex), Vec<PackageError>), PackageError> {
    let (mut searched, mut unread) = (Vec::new(), Vec::new());
    for place in indexes {
        let index = match PluginIndex::read(place).await {
            Ok(index) => index,
            Err(error) if error.is_of_index() => {
                unread.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(found) = find(&index) {
            return Ok((found, (place.clone(), index), unread));
        }
        searched.push(index.location());
        // What was left out may be what is looked for.
        unread.extend(index.left_out());
    }
    match unread.pop() {
        Some(only) if searched.is_empty() && unread.is_empty() => Err(only),
        last => {
            unread.extend(last);
            Err(unknown_plugin(wanted.to_owned(), &searched, &unread))
        }
    }
}

fn unknown_plugin(wanted: String, looked: &[String], unread: &[PackageError]) -> PackageError {
    let looked = match looked.is_empty() {
        false => Some(format!("looked in {}", looked.join(", "))),
        true if unread.is_empty() => Some(
            "none is known; name one with `--index`, or a file or an address of a package"
                .to_owned(),
        ),
        true => None,
    };
    let unread = unread.iter().map(ToString::to_string);
    let parts: Vec<String> = looked.into_iter().chain(unread).collect();
    PackageError::Unknown {
        wanted,
        looked: parts.join("; "),
    }
}

/// The package that an index names, if it is the one that is there.
async fn fetch_entry(
    index: &PluginIndex,
    named: &str,
    entry: &IndexEntry,
) -> Result<FetchedPackage, PackageError> {
    let place = index.package_location(entry)?;
    let package = match PackageSource::read(&place)? {
        PackageSource::File(path) => Package::open(&path)?,
        PackageSource::Address(url) => fetch_url(&url).await?,
        PackageSource::Registry(place) => Box::pin(place.fetch()).await?.0,
        PackageSource::Indexed { .. } => {
            return Err(PackageError::Index {
                location: index.location(),
                reason: format!("its package of {} is nowhere", entry.name),
            });
        }
    };
    let described = package.description();
    let is_it = (&described.name, &described.version) == (&entry.name, &entry.version)
        && package.sha256() == entry.sha256
        && (entry.signer.is_none() || entry.signer == described.signer);
    if !is_it {
        let wanted = format!(
            "{} {} with the digest {} of {}",
            entry.name,
            entry.version,
            entry.sha256.short(),
            index.location()
        );
        return Err(digest_mismatch(&package, wanted));
    }
    Ok(FetchedPackage {
        source: format!("{}@{}", entry.name, entry.version),
        index: Some(match Path::new(named).exists() {
            true => absolute_path(Path::new(named)),
            false => http::redacted_text(named),
        }),
        package,
        index_errors: Vec::new(),
        left_out: None,
    })
}

/// A path from the root, that goes back nowhere: what is above a directory does not begin with it.
fn absolute_path(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let goes_back = whole.components().any(|part| part == Component::ParentDir);
    let real = goes_back.then(|| whole.canonicalize().ok()).flatten();
    real.unwrap_or(whole).display().to_string()
}

/// A place of packages as people may see it: an address is without the name and the password that may be
/// in it, which are kept nowhere.
pub fn redacted_location(place: &str) -> String {
    http::redacted_text(place)
}

impl FetchedPackage {
    /// What a lock says of it.
    pub fn lock_entry(&self) -> LockedPlugin {
        LockedPlugin {
            index: self.index.clone(),
            ..self.package.lock_entry(&self.source)
        }
    }

    /// Whether it is the package with this digest.
    ///
    /// # Errors
    /// [`PackageError::Mismatch`].
    pub fn check_digest(&self, wanted: &Sha256) -> Result<(), PackageError> {
        match self.package.sha256() == *wanted {
            true => Ok(()),
            false => {
                let wanted = format!("the package with the digest {}", wanted.short());
                Err(digest_mismatch(&self.package, wanted))
            }
        }
    }
}

fn digest_mismatch(package: &Package, wanted: String) -> PackageError {
    PackageError::Mismatch {
        location: package.location().to_owned(),
        found: format!(
            "{} with the digest {}",
            package.description().id(),
            package.sha256().short()
        ),
        wanted,
    }
}

/// Puts a package where others find it: a folder with an index, or a registry. Says where it is.
///
/// # Errors
/// [`PackageError::Publish`].
#[boxed]
pub async fn publish(package: &Package, place: &str) -> Result<String, PackageError> {
    if place.starts_with(oci::SCHEME) {
        return Box::pin(RegistryReference::publish(place, package)).await;
    }
    if place.contains("://") {
        return Err(PackageError::Publish {
            location: redacted_location(place),
            reason:
                "name a folder, or `oci://HOST/NAME`; what a web server shows is a folder that \
                     was published into"
                    .to_owned(),
        });
    }
    let dir = Path::new(place);
    if !dir.is_dir() {
        return Err(PackageError::Publish {
            location: place.to_owned(),
            reason: "it is no folder; make it first".to_owned(),
        });
    }
    let path = PluginIndex::publish(dir, package)?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_without_going_back() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let inner = real.join("inner");
        conjure_config::fs::create_private_dir(&inner).unwrap();
        conjure_config::fs::write(real.join("p"), "x").unwrap();
        assert_eq!(
            absolute_path(&inner.join("../p")),
            real.join("p").display().to_string()
        );
        // What is not there is left as it was named.
        let missing = inner.join("../q");
        assert_eq!(absolute_path(&missing), missing.display().to_string());
    }

    #[test]
    fn a_source_shows_no_password() {
        let source = PackageSource::read("https://ada:secret@h.example/p").unwrap();
        assert_eq!(source.to_string(), "https://h.example/p");
        let error = PackageSource::read("https://ada:secret@h.example:x/p").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
