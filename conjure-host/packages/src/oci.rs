//! Packages in registries of container images.
//!
//! A package is one layer of an artifact whose configuration is the package's description, so that a
//! registry and its tools can say what it is without fetching it.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use serde_json::json;

use crate::docker_auth::auth;
use crate::http;
use crate::package::too_large;
use crate::registry_answer::RegistryError;
use crate::registry_client::{MANIFEST, RegistryClient, digest};
use crate::registry_login::RegistryAccess;
use crate::{PACKAGE_LIMIT, Package, PackageError};

/// What addresses of this kind begin with.
pub(crate) const SCHEME: &str = "oci://";

/// What a package is called among the layers of an artifact.
const LAYER: &str = "application/vnd.conjure.plugin.v1+zip";
/// What a description is called.
const CONFIG: &str = "application/vnd.conjure.plugin.config.v1+json";

/// Why a package is not put where another one is.
const VERSION_TAKEN: &str = "it has another package there, which locks of others may name; give this one \
                     another version";

/// How many versions are named to whoever asked for one that there is not.
const MAX_SHOWN_VERSIONS: usize = 10;

/// How long after a package was put there it is looked at once more.
const SETTLE_TIME: Duration = Duration::from_millis(1_500);

/// How long all the versions may take that a registry has.
const LIST_TIMEOUT: Duration = Duration::from_secs(300);

/// The manifest of an artifact, as far as it says what is in it.
#[derive(Deserialize)]
struct ArtifactManifest {
    #[serde(default)]
    layers: Vec<ArtifactLayer>,
}

/// A layer of an artifact.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLayer {
    media_type: String,
    digest: String,
    size: u64,
}

/// A place in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryReference {
    reference: Reference,
    /// Whether it says which version.
    is_exact: bool,
}

impl RegistryReference {
    /// Reads `oci://HOST/NAME[:TAG][@sha256:DIGEST]`.
    pub(crate) fn read(text: &str) -> Result<Self, PackageError> {
        let named = text.strip_prefix(SCHEME).unwrap_or(text);
        let Some((host, rest)) = named.split_once('/') else {
            return Err(parse_error(text, "it has no name of a registry"));
        };
        // Anything else is taken for a name at Docker's own registry.
        if host != "localhost" && !host.contains(['.', ':']) {
            let reason = format!("`{host}` is no whole name of a registry");
            return Err(parse_error(text, &reason));
        }
        let last = rest.rsplit('/').next().unwrap_or_default();
        let is_exact = last.contains([':', '@']);
        match named.parse::<Reference>() {
            Ok(reference) => Ok(Self {
                reference,
                is_exact,
            }),
            Err(error) => Err(parse_error(text, &error.to_string())),
        }
    }

    /// Returns this place with the tag of a version.
    fn with_tag(&self, version: &str) -> Self {
        // A tag has no `+`.
        let tag = version.replace('+', "_");
        let (registry, repository) = (self.reference.registry(), self.reference.repository());
        Self {
            reference: Reference::with_tag(registry.to_owned(), repository.to_owned(), tag),
            is_exact: true,
        }
    }

    /// Returns this place pinned to a digest, which names the same contents wherever the tag goes later.
    fn with_digest(&self, digest: String) -> Self {
        let reference = &self.reference;
        let reference = match reference.tag() {
            Some(tag) => Reference::with_tag_and_digest(
                reference.registry().to_owned(),
                reference.repository().to_owned(),
                tag.to_owned(),
                digest,
            ),
            None => reference.clone_with_digest(digest),
        };
        Self {
            reference,
            is_exact: true,
        }
    }

    /// Returns this place by its tag alone; `None` where it has no tag, or no digest beside it.
    pub(crate) fn by_tag(&self) -> Option<Self> {
        let is_pinned = self.reference.digest().is_some();
        let tag = self.reference.tag().filter(|_| is_pinned)?;
        Some(self.with_tag(tag))
    }

    /// Returns this place with the newest version that the registry has, where it names no version.
    pub(crate) async fn resolve_version(&self) -> Result<Self, PackageError> {
        if self.is_exact {
            return Ok(self.clone());
        }
        let versions = self.versions().await?;
        match super::index::newest(versions.iter().map(String::as_str)) {
            Some(version) => Ok(self.with_tag(version)),
            None => Err(PackageError::Fetch {
                location: self.to_string(),
                reason: "it has no version there".to_owned(),
            }),
        }
    }

    /// Logs in to read it.
    async fn connect(&self) -> Result<RegistryClient, PackageError> {
        let failed = |reason: String| PackageError::Fetch {
            location: self.to_string(),
            reason,
        };
        let auth = auth(self.reference.resolve_registry()).await;
        let auth = auth.map_err(failed)?;
        let client = RegistryClient::connect(&self.reference, &auth, RegistryAccess::Read).await;
        client.map_err(|error| failed(explain(&error)))
    }

    /// The versions that there are.
    async fn versions(&self) -> Result<Vec<String>, PackageError> {
        let place = self.to_string();
        let tags = async {
            let tags = self.connect().await?.tags().await;
            tags.map_err(|error| match error.is_missing() {
                true => unknown_name(&place),
                false => fetch_error(&place, &error),
            })
        };
        let tags = with_timeout(LIST_TIMEOUT, &place, tags).await?;
        Ok(tags.into_iter().map(|tag| tag.replace('_', "+")).collect())
    }

    /// The error that the registry does not have this version, with the versions that it has.
    async fn missing_version(&self) -> PackageError {
        let place = self.to_string();
        let versions = match self.versions().await {
            Ok(versions) => versions,
            Err(error) => return error,
        };
        let mut newest = newest_first(&versions);
        newest.truncate(MAX_SHOWN_VERSIONS);
        match newest.is_empty() {
            true => unknown_name(&place),
            false => PackageError::Fetch {
                location: place,
                reason: format!(
                    "the registry does not have this version; it has {}",
                    newest.join(", ")
                ),
            },
        }
    }

    /// The package there, and the place with the digest of what is there now.
    pub(crate) async fn fetch(&self) -> Result<(Package, Self), PackageError> {
        with_timeout(http::TOTAL_TIMEOUT, &self.to_string(), self.fetch_all()).await
    }

    async fn fetch_all(&self) -> Result<(Package, Self), PackageError> {
        let place = self.to_string();
        let client = self.connect().await?;
        let found = match client.manifest(&self.reference).await {
            Ok(found) => found,
            Err(error) if error.is_missing() => return Err(Box::pin(self.missing_version()).await),
            Err(error) => return Err(fetch_error(&place, &error)),
        };
        let layers = layers(&found.bytes);
        let layer = match layers.as_deref() {
            Some([layer]) if layer.media_type == LAYER => layer,
            _ => {
                return Err(PackageError::Form {
                    location: place,
                    reason: "it is an image or an artifact of another kind".to_owned(),
                });
            }
        };
        if layer.size > PACKAGE_LIMIT {
            return Err(too_large(&place));
        }
        let bytes = client.blob(&layer.digest, layer.size).await;
        let bytes = bytes.map_err(|error| fetch_error(&place, &error))?;
        let package = Package::read(&place, bytes)?;
        Ok((package, self.with_digest(found.digest)))
    }

    /// Puts a package there; without a tag under its version. Says where it is. A version that is there
    /// with other contents is not replaced.
    pub(crate) async fn publish(text: &str, package: &Package) -> Result<String, PackageError> {
        let place = Self::read(text)?;
        let place = match place.is_exact {
            true => place,
            false => place.with_tag(&package.description().version),
        };
        let shown = place.to_string();
        let published =
            tokio::time::timeout(http::TOTAL_TIMEOUT, Box::pin(place.push(package))).await;
        let reason = match published {
            Ok(Ok(())) => return Ok(shown),
            Ok(Err(reason)) => reason,
            Err(_) => timeout_reason(http::TOTAL_TIMEOUT),
        };
        Err(PackageError::Publish {
            location: shown,
            reason,
        })
    }

    /// Puts a package there, or says why not.
    async fn push(&self, package: &Package) -> Result<(), String> {
        let reference = &self.reference;
        let failed = |error: RegistryError| explain(&error);
        let auth: RegistryAuth = auth(reference.resolve_registry()).await?;
        let client = RegistryClient::connect(reference, &auth, RegistryAccess::Write).await;
        let client = client.map_err(failed)?;
        let own = format!("sha256:{}", package.sha256());
        // One of another name may move.
        let is_version = names_version(reference);
        if is_version && is_published(&client, reference, &own).await? {
            return Ok(());
        }
        let description = serde_json::to_vec(package.description());
        let description = description.map_err(|error| error.to_string())?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": LAYER,
            "config": {
                "mediaType": CONFIG,
                "digest": digest(&description),
                "size": description.len(),
            },
            "layers": [{ "mediaType": LAYER, "digest": own, "size": package.bytes().len() }],
        });
        let bytes = Bytes::copy_from_slice(package.bytes());
        client.push_blob(bytes).await.map_err(failed)?;
        let pushed = client.push_blob(Bytes::from(description)).await;
        pushed.map_err(failed)?;
        // Somebody else may have put one there meanwhile, …
        if is_version && is_published(&client, reference, &own).await? {
            return Ok(());
        }
        let manifest = manifest.to_string().into_bytes();
        match client.push_manifest(reference, manifest, is_version).await {
            Err(error) if is_version && error.is_taken() => {
                let is_own = is_published(&client, reference, &own).await?;
                return is_own.then_some(()).ok_or_else(|| VERSION_TAKEN.to_owned());
            }
            pushed => pushed.map_err(failed)?,
        }
        // … and in the same moment, of which a registry keeps the last: so it is looked at again when
        // somebody else who saw nothing there has put theirs there as well.
        if is_version {
            is_published(&client, reference, &own).await?;
            tokio::time::sleep(SETTLE_TIME).await;
            is_published(&client, reference, &own).await?;
        }
        Ok(())
    }

    /// Where something newer than a version is, if anything is: the newest version there, or what a tag
    /// leads to now that is no version and so may move.
    pub(crate) async fn newer(&self, version: &str) -> Result<Option<Self>, PackageError> {
        if let Some(tag) = self.reference.tag().filter(|_| self.is_exact)
            && !names_version(&self.reference)
        {
            return Ok(Some(self.with_tag(tag)));
        }
        let versions = self.versions().await?;
        let newest = super::index::newer(versions.iter().map(String::as_str), version);
        Ok(newest.map(|version| self.with_tag(version)))
    }
}

impl std::fmt::Display for RegistryReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.reference)
    }
}

fn parse_error(text: &str, reason: &str) -> PackageError {
    PackageError::Fetch {
        location: super::http::redacted_text(text),
        reason: format!("{reason}; write `oci://HOST/NAME:VERSION`"),
    }
}

fn unknown_name(place: &str) -> PackageError {
    PackageError::Fetch {
        location: place.to_owned(),
        reason:
            "the registry has nothing of this name, or shows it only to whom it knows; check the \
                 name, or log in with `docker login`"
                .to_owned(),
    }
}

/// Each of some tags once, the newest version first; behind them those that are no versions. A registry
/// says them by the alphabet.
fn newest_first(tags: &[String]) -> Vec<&str> {
    let mut tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    tags.sort_by_cached_key(|tag| Reverse((semver::Version::parse(tag).ok(), *tag)));
    tags.dedup();
    tags
}

/// Whether a tag says which version is there: one of another name may move.
fn names_version(reference: &Reference) -> bool {
    let tag = reference.tag().map(|tag| tag.replace('_', "+"));
    tag.is_some_and(|tag| semver::Version::parse(&tag).is_ok())
}

/// Whether this very package is there already, as far as the registry says it. Whoever may write there
/// need not be allowed to read.
///
/// # Errors
/// That another one is there, or why the registry does not say it.
async fn is_published(
    client: &RegistryClient,
    reference: &Reference,
    own: &str,
) -> Result<bool, String> {
    let found = match client.manifest(reference).await {
        Ok(found) => found,
        // A login that is not taken says nothing of what is there.
        Err(error) if error.is_unauthorized() && client.has_login().await => {
            return Err(explain(&error));
        }
        Err(error) if error.is_missing() || error.is_hidden() => return Ok(false),
        Err(error) => return Err(explain(&error)),
    };
    match layers(&found.bytes).as_deref() {
        Some([layer]) if layer.digest == own => Ok(true),
        _ => Err(VERSION_TAKEN.to_owned()),
    }
}

/// The layers that a manifest names; nothing of what is no manifest.
fn layers(manifest: &[u8]) -> Option<Vec<ArtifactLayer>> {
    let manifest = serde_json::from_slice::<ArtifactManifest>(manifest).ok()?;
    Some(manifest.layers)
}

/// Does something in so much time.
async fn with_timeout<T>(
    limit: Duration,
    place: &str,
    work: impl Future<Output = Result<T, PackageError>>,
) -> Result<T, PackageError> {
    let done = tokio::time::timeout(limit, Box::pin(work)).await;
    done.unwrap_or_else(|_| {
        Err(PackageError::Fetch {
            location: place.to_owned(),
            reason: timeout_reason(limit),
        })
    })
}

fn timeout_reason(limit: Duration) -> String {
    format!(
        "the registry takes longer than {} s. Try again later",
        limit.as_secs()
    )
}

fn fetch_error(place: &str, error: &RegistryError) -> PackageError {
    PackageError::Fetch {
        location: place.to_owned(),
        reason: explain(error),
    }
}

/// Why a registry did not do something, and what to do.
fn explain(error: &RegistryError) -> String {
    match error.is_hidden() {
        true => format!(
            "{error}. A password for the registry is taken from where `docker login` keeps it: Docker's \
             `config.json`, or the helper that this names"
        ),
        false => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_from_the_newest_on() {
        let tags = ["0.10.0", "0.8.0", "0.9.0", "0.9.0", "stable"].map(str::to_owned);
        assert_eq!(newest_first(&tags), ["0.10.0", "0.9.0", "0.8.0", "stable"]);
    }

    #[test]
    fn a_tag_that_is_a_version_stays_what_it_is_and_another_may_move() {
        let names = |text: &str| names_version(&RegistryReference::read(text).unwrap().reference);
        assert!(names("oci://h.example/p:1.2.3") && names("oci://h.example/p:1.2.3_x"));
        assert!(!names("oci://h.example/p:stable") && !names("oci://h.example/p"));
    }

    #[test]
    fn places_are_read_and_a_version_is_their_tag_where_they_have_none() {
        let read = |text: &str| RegistryReference::read(text).unwrap();
        let bare = read("oci://localhost:5000/a/b");
        assert!(!bare.is_exact);
        let tagged = bare.with_tag("1.2.3+x").to_string();
        assert_eq!(tagged, "oci://localhost:5000/a/b:1.2.3_x");
        assert!(read("oci://localhost:5000/a/b:mine").is_exact);
        let digest = format!("sha256:{}", "0".repeat(64));
        let pinned = read("oci://localhost:5000/a/b:mine").with_digest(digest.clone());
        assert_eq!(
            pinned.to_string(),
            format!("oci://localhost:5000/a/b:mine@{digest}")
        );
        assert_eq!(read(&pinned.to_string()), pinned);
        let by_tag = pinned.by_tag().unwrap();
        assert_eq!(by_tag.to_string(), "oci://localhost:5000/a/b:mine");
        assert_eq!(by_tag.by_tag(), None);
        for other in [
            "oci://",
            "oci://b",
            "oci://h.x/A B",
            "oci://h.x/../x",
            "oci://registry/plugins/x",
        ] {
            RegistryReference::read(other).unwrap_err();
        }
    }
}
