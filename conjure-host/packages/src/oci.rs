//! Packages in registries of container images.
//!
//! A package is one layer of an artifact whose configuration is the package's description, so that a
//! registry and its tools can say what it is without fetching it.

use std::cmp::Reverse;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::OciImageManifest;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};

use crate::docker_auth::auth;
use crate::http::whole;
use crate::package::too_large;
use crate::{PACKAGE_LIMIT, Package, PackageError};

/// What addresses of this kind begin with.
pub(crate) const SCHEME: &str = "oci://";

/// What a package is called among the layers of an artifact.
const LAYER: &str = "application/vnd.conjure.plugin.v1+zip";
/// What a description is called.
const CONFIG: &str = "application/vnd.conjure.plugin.config.v1+json";

/// Why a package is not put where another one is.
const TAKEN: &str = "it has another package there, which locks of others may name; give this one \
                     another version";

/// How many versions are named to whoever asked for one that there is not.
const SHOWN: usize = 10;

/// How many tags are asked for at once, and how often.
const PAGE: usize = 1_000;
const PAGES: usize = 100;

/// A place in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlace {
    reference: Reference,
    /// Whether it says which version.
    is_exact: bool,
}

impl RegistryPlace {
    /// Reads `oci://HOST/NAME[:TAG][@sha256:DIGEST]`.
    pub(crate) fn read(text: &str) -> Result<Self, PackageError> {
        let named = text.strip_prefix(SCHEME).unwrap_or(text);
        let Some((host, rest)) = named.split_once('/') else {
            return Err(unreadable(text, "it has no name of a registry"));
        };
        // Anything else is taken for a name at Docker's own registry.
        if host != "localhost" && !host.contains(['.', ':']) {
            let reason = format!("`{host}` is no whole name of a registry");
            return Err(unreadable(text, &reason));
        }
        let last = rest.rsplit('/').next().unwrap_or_default();
        let is_exact = last.contains([':', '@']);
        match named.parse::<Reference>() {
            Ok(reference) => Ok(Self {
                reference,
                is_exact,
            }),
            Err(error) => Err(unreadable(text, &error.to_string())),
        }
    }

    /// The same place with the tag of a version.
    fn with_tag(&self, version: &str) -> Self {
        // A tag has no `+`.
        let tag = version.replace('+', "_");
        let (registry, repository) = (self.reference.registry(), self.reference.repository());
        Self {
            reference: Reference::with_tag(registry.to_owned(), repository.to_owned(), tag),
            is_exact: true,
        }
    }

    /// The same place with the newest version that is there, where it says none.
    pub(crate) async fn exact(&self) -> Result<Self, PackageError> {
        if self.is_exact {
            return Ok(self.clone());
        }
        let versions = self.versions().await?;
        match super::index::newest(versions.iter().map(String::as_str)) {
            Some(version) => Ok(self.with_tag(version)),
            None => Err(PackageError::Fetch {
                place: self.to_string(),
                reason: "it has no version there".to_owned(),
            }),
        }
    }

    async fn auth(&self) -> Result<RegistryAuth, PackageError> {
        let auth = auth(self.reference.resolve_registry()).await;
        auth.map_err(|reason| PackageError::Fetch {
            place: self.to_string(),
            reason,
        })
    }

    /// The versions that there are.
    async fn versions(&self) -> Result<Vec<String>, PackageError> {
        let place = self.to_string();
        let (client, auth) = (client(&self.reference), self.auth().await?);
        let mut tags: Vec<String> = Vec::new();
        for _ in 0..PAGES {
            let last = tags.last().cloned();
            let page = client
                .list_tags(&self.reference, &auth, Some(PAGE), last.as_deref())
                .await;
            let page = page.map_err(|error| match is_missing(&error) {
                true => nothing_of_name(&place),
                false => fetch_error(&place, &error),
            })?;
            let page = page.tags;
            // One that knows no pages says the same again.
            let is_over = page.is_empty() || page.last() == last.as_ref();
            tags.extend(page);
            if is_over {
                break;
            }
        }
        Ok(tags.into_iter().map(|tag| tag.replace('_', "+")).collect())
    }

    /// That nothing is there, and what is.
    async fn missing(&self) -> PackageError {
        let place = self.to_string();
        let versions = match self.versions().await {
            Ok(versions) => versions,
            Err(error) => return error,
        };
        let mut newest = newest_first(&versions);
        newest.truncate(SHOWN);
        match newest.is_empty() {
            true => nothing_of_name(&place),
            false => PackageError::Fetch {
                place,
                reason: format!(
                    "the registry does not have this version; it has {}",
                    newest.join(", ")
                ),
            },
        }
    }

    /// The package there.
    pub(crate) async fn fetch(&self) -> Result<Package, PackageError> {
        let place = self.to_string();
        let failed = |error: &dyn std::error::Error| fetch_error(&place, error);
        let (client, auth) = (client(&self.reference), self.auth().await?);
        let pulled = client.pull_image_manifest(&self.reference, &auth).await;
        let manifest = match pulled {
            Ok((manifest, _)) => manifest,
            Err(error) if is_missing(&error) => return Err(Box::pin(self.missing()).await),
            Err(error) => return Err(failed(&error)),
        };
        let layer = match manifest.layers.as_slice() {
            [layer] if layer.media_type == LAYER => layer,
            _ => {
                return Err(PackageError::Form {
                    place,
                    reason: "it is an image or an artifact of another kind".to_owned(),
                });
            }
        };
        if u64::try_from(layer.size).is_ok_and(|size| size > PACKAGE_LIMIT) {
            return Err(too_large(&place));
        }
        let stream = client.pull_blob_stream(&self.reference, layer).await;
        let mut stream = stream.map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.try_next().await.map_err(|error| failed(&error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > PACKAGE_LIMIT {
                return Err(too_large(&place));
            }
        }
        Package::read(&place, bytes)
    }

    /// Puts a package there; without a tag under its version. Says where it is. A version that is there
    /// with other contents is not replaced.
    pub(crate) async fn publish(text: &str, package: &Package) -> Result<String, PackageError> {
        let place = Self::read(text)?;
        let place = match place.is_exact {
            true => place,
            false => place.with_tag(&package.description().version),
        };
        let reference = place.reference;
        let failed = |reason: String| PackageError::Publish {
            place: format!("{SCHEME}{reference}"),
            reason,
        };
        let description = serde_json::to_vec(package.description());
        let description = description.map_err(|error| failed(error.to_string()))?;
        let config = Config::new(description, CONFIG.to_owned(), None);
        let layer = ImageLayer::new(
            Bytes::copy_from_slice(package.bytes()),
            LAYER.to_owned(),
            None,
        );
        let layers = [layer];
        let mut manifest = OciImageManifest::build(&layers, &config, None);
        manifest.artifact_type = Some(LAYER.to_owned());
        let auth = auth(reference.resolve_registry()).await.map_err(&failed)?;
        let client = client(&reference);
        if names_version(&reference) {
            let there = Box::pin(layer_there(&client, &reference, &auth)).await;
            let there = there.map_err(|error| failed(help(&whole(&error))))?;
            match there {
                Some(there) if there == format!("sha256:{}", package.sha256()) => {
                    return Ok(format!("{SCHEME}{reference}"));
                }
                Some(_) => return Err(failed(TAKEN.to_owned())),
                None => {}
            }
        }
        let pushed = client
            .push(&reference, &layers, config, &auth, Some(manifest))
            .await;
        match pushed {
            Ok(_) => Ok(format!("{SCHEME}{reference}")),
            Err(error) => Err(failed(help(&whole(&error)))),
        }
    }

    /// The newest version there that is newer than one, if any is.
    pub(crate) async fn newer(&self, version: &str) -> Result<Option<Self>, PackageError> {
        let versions = self.versions().await?;
        let newest = super::index::newer(versions.iter().map(String::as_str), version);
        Ok(newest.map(|version| self.with_tag(version)))
    }
}

impl std::fmt::Display for RegistryPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.reference)
    }
}

fn unreadable(text: &str, reason: &str) -> PackageError {
    PackageError::Fetch {
        place: super::http::shown_text(text),
        reason: format!("{reason}; write `oci://HOST/NAME:VERSION`"),
    }
}

fn nothing_of_name(place: &str) -> PackageError {
    PackageError::Fetch {
        place: place.to_owned(),
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

/// Whether a registry says that it has no such thing.
fn is_missing(error: &OciDistributionError) -> bool {
    use OciErrorCode::{ManifestUnknown, NameUnknown, NotFound};
    match error {
        OciDistributionError::ImageManifestNotFoundError(_)
        | OciDistributionError::ServerError { code: 404, .. } => true,
        error => says(error, &[ManifestUnknown, NameUnknown, NotFound]),
    }
}

/// Whether a registry does not say what it has.
fn is_hidden(error: &OciDistributionError) -> bool {
    match error {
        OciDistributionError::UnauthorizedError { .. }
        | OciDistributionError::AuthenticationFailure(_) => true,
        error => says(error, &[OciErrorCode::Unauthorized, OciErrorCode::Denied]),
    }
}

fn says(error: &OciDistributionError, codes: &[OciErrorCode]) -> bool {
    match error {
        OciDistributionError::RegistryError { envelope, .. } => {
            let mut errors = envelope.errors.iter();
            errors.any(|error| codes.contains(&error.code))
        }
        _ => false,
    }
}

/// Whether a tag says which version is there: one of another name may move.
fn names_version(reference: &Reference) -> bool {
    let tag = reference.tag().map(|tag| tag.replace('_', "+"));
    tag.is_some_and(|tag| semver::Version::parse(&tag).is_ok())
}

/// The digest of the package that is there already, as far as the registry says it. Whoever may write
/// there need not be allowed to read.
async fn layer_there(
    client: &Client,
    reference: &Reference,
    auth: &RegistryAuth,
) -> Result<Option<String>, OciDistributionError> {
    match client.pull_image_manifest(reference, auth).await {
        Ok((manifest, _)) => {
            let layer = manifest.layers.into_iter().next();
            Ok(Some(layer.map(|layer| layer.digest).unwrap_or_default()))
        }
        Err(error) if is_missing(&error) || is_hidden(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn fetch_error(place: &str, error: &dyn std::error::Error) -> PackageError {
    PackageError::Fetch {
        place: place.to_owned(),
        reason: help(&whole(error)),
    }
}

fn help(reason: &str) -> String {
    let lower = reason.to_lowercase();
    match ["unauthorized", "authentication", "denied"]
        .iter()
        .any(|word| lower.contains(word))
    {
        true => format!(
            "{reason}. A password for the registry is taken from where `docker login` keeps it: Docker's \
             `config.json`, or the helper that this names"
        ),
        false => reason.to_owned(),
    }
}

/// A client for a registry: encrypted, but for one on this machine.
fn client(reference: &Reference) -> Client {
    let registry = reference.resolve_registry();
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let protocol = match is_here {
        true => ClientProtocol::HttpsExcept(vec![registry.to_owned()]),
        false => ClientProtocol::Https,
    };
    let silence = Some(std::time::Duration::from_secs(30));
    Client::new(ClientConfig {
        protocol,
        connect_timeout: silence,
        read_timeout: silence,
        user_agent: concat!("conjure/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_does_not_have_is_told_from_what_it_does_not_show() {
        let error = |code: &str| {
            let text = format!("{{\"errors\": [{{\"code\": \"{code}\"}}]}}");
            OciDistributionError::RegistryError {
                envelope: serde_json::from_str(&text).unwrap(),
                url: String::new(),
            }
        };
        for code in ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_FOUND"] {
            assert!(
                is_missing(&error(code)) && !is_hidden(&error(code)),
                "{code}"
            );
        }
        for code in ["UNAUTHORIZED", "DENIED"] {
            assert!(
                !is_missing(&error(code)) && is_hidden(&error(code)),
                "{code}"
            );
        }
        assert!(!is_missing(&error("TOOMANYREQUESTS")));
    }

    #[test]
    fn versions_are_named_from_the_newest_on() {
        let tags = ["0.10.0", "0.8.0", "0.9.0", "0.9.0", "stable"].map(str::to_owned);
        assert_eq!(newest_first(&tags), ["0.10.0", "0.9.0", "0.8.0", "stable"]);
    }

    #[test]
    fn a_tag_that_is_a_version_stays_what_it_is_and_another_may_move() {
        let names = |text: &str| names_version(&RegistryPlace::read(text).unwrap().reference);
        assert!(names("oci://h.example/p:1.2.3") && names("oci://h.example/p:1.2.3_x"));
        assert!(!names("oci://h.example/p:stable") && !names("oci://h.example/p"));
    }

    #[test]
    fn places_are_read_and_a_version_is_their_tag_where_they_have_none() {
        let read = |text: &str| RegistryPlace::read(text).unwrap();
        let bare = read("oci://localhost:5000/a/b");
        assert!(!bare.is_exact);
        let tagged = bare.with_tag("1.2.3+x").to_string();
        assert_eq!(tagged, "oci://localhost:5000/a/b:1.2.3_x");
        assert!(read("oci://localhost:5000/a/b:mine").is_exact);
        for other in [
            "oci://",
            "oci://b",
            "oci://h.x/A B",
            "oci://h.x/../x",
            "oci://registry/plugins/x",
        ] {
            RegistryPlace::read(other).unwrap_err();
        }
    }
}
