//! Packages in registries of container images.
//!
//! A package is one layer of an artifact whose configuration is the package's description, so that a
//! registry and its tools can say what it is without fetching it.

use base64::Engine as _;
use bytes::Bytes;
use conjure_config::{env, fs};
use futures_util::TryStreamExt as _;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::OciImageManifest;
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde_json::Value;

use crate::http::whole;
use crate::package::too_large;
use crate::{PACKAGE_LIMIT, Package, PackageError};

/// What addresses of this kind begin with.
pub(crate) const SCHEME: &str = "oci://";

/// What a package is called among the layers of an artifact.
const LAYER: &str = "application/vnd.conjure.plugin.v1+zip";
/// What a description is called.
const CONFIG: &str = "application/vnd.conjure.plugin.config.v1+json";

/// How many versions of one plugin are looked at.
const TAGS: usize = 10_000;

/// A place in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlace(Reference);

impl RegistryPlace {
    /// Reads `oci://HOST/NAME[:TAG][@sha256:DIGEST]`.
    pub(crate) fn read(text: &str) -> Result<Self, PackageError> {
        let reference = text.strip_prefix(SCHEME).unwrap_or(text);
        let parsed = reference.parse::<Reference>();
        let is_whole = reference.contains('/');
        match parsed {
            Ok(reference) if is_whole => Ok(Self(reference)),
            Ok(_) => Err(unreadable(text, "it has no name of a registry")),
            Err(error) => Err(unreadable(text, &error.to_string())),
        }
    }

    /// The same place with the tag of a version, where it has none of its own.
    fn for_version(&self, text: &str, version: &str) -> Reference {
        let last = text.rsplit('/').next().unwrap_or_default();
        if last.contains([':', '@']) {
            return self.0.clone();
        }
        self.with_tag(version)
    }

    fn with_tag(&self, version: &str) -> Reference {
        // A tag has no `+`.
        let tag = version.replace('+', "_");
        let (registry, repository) = (self.0.registry(), self.0.repository());
        Reference::with_tag(registry.to_owned(), repository.to_owned(), tag)
    }

    /// The package there.
    pub(crate) async fn fetch(&self) -> Result<Package, PackageError> {
        let place = self.to_string();
        let failed = |error: &dyn std::error::Error| fetch_error(&place, error);
        let (client, auth) = (client(&self.0), auth(&self.0));
        let pulled = client.pull_image_manifest(&self.0, &auth).await;
        let (manifest, _) = pulled.map_err(|error| failed(&error))?;
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
        let stream = client.pull_blob_stream(&self.0, layer).await;
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

    /// Puts a package there; without a tag under its version. Says where it is.
    pub(crate) async fn publish(text: &str, package: &Package) -> Result<String, PackageError> {
        let place = Self::read(text)?;
        let reference = place.for_version(text, &package.description().version);
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
        let pushed = client(&reference)
            .push(
                &reference,
                &layers,
                config,
                &auth(&reference),
                Some(manifest),
            )
            .await;
        match pushed {
            Ok(_) => Ok(format!("{SCHEME}{reference}")),
            Err(error) => Err(failed(help(&whole(&error)))),
        }
    }

    /// The newest version there that is newer than one, if any is.
    pub(crate) async fn newer(&self, version: &str) -> Result<Option<Self>, PackageError> {
        let place = self.to_string();
        let tags = client(&self.0);
        let tags = tags
            .list_tags(&self.0, &auth(&self.0), Some(TAGS), None)
            .await;
        let tags = tags.map_err(|error| fetch_error(&place, &error))?.tags;
        let versions: Vec<String> = tags.into_iter().map(|tag| tag.replace('_', "+")).collect();
        let newest = super::index::newest(versions.iter().map(String::as_str), version);
        Ok(newest.map(|version| Self(self.with_tag(version))))
    }
}

impl std::fmt::Display for RegistryPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

fn unreadable(text: &str, reason: &str) -> PackageError {
    PackageError::Fetch {
        place: text.to_owned(),
        reason: format!("{reason}; write `oci://HOST/NAME:VERSION`"),
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
    match ["unauthorized", "authenticat", "denied", "401", "403"]
        .iter()
        .any(|word| lower.contains(word))
    {
        true => format!("{reason}. `docker login` keeps a password for the registry"),
        false => reason.to_owned(),
    }
}

/// A client for a registry: encrypted, but for one on this machine.
fn client(reference: &Reference) -> Client {
    let registry = reference.resolve_registry();
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let is_here = host == "localhost" || host.starts_with("127.") || host == "[::1]";
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

/// What `docker login` keeps for a registry.
fn auth(reference: &Reference) -> RegistryAuth {
    let dir = env::var(env::DOCKER_CONFIG).map(Into::into);
    let dir = dir.or_else(|| env::home().map(|home| home.join(".docker")));
    let kept = dir.and_then(|dir| fs::read_to_string(dir.join("config.json")).ok());
    let kept = kept.and_then(|text| kept_auth(&text, reference.resolve_registry()));
    kept.unwrap_or(RegistryAuth::Anonymous)
}

fn kept_auth(text: &str, registry: &str) -> Option<RegistryAuth> {
    let config: Value = serde_json::from_str(text).ok()?;
    let auth = config.get("auths")?.get(registry)?.get("auth")?.as_str()?;
    let auth = base64::engine::general_purpose::STANDARD
        .decode(auth)
        .ok()?;
    let auth = String::from_utf8(auth).ok()?;
    let (user, password) = auth.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_a_version_is_their_tag_where_they_have_none() {
        let tagged = |text: &str| {
            let place = RegistryPlace::read(text).unwrap();
            place.for_version(text, "1.2.3+x").to_string()
        };
        assert_eq!(
            tagged("oci://localhost:5000/a/b"),
            "localhost:5000/a/b:1.2.3_x"
        );
        assert_eq!(
            tagged("oci://localhost:5000/a/b:mine"),
            "localhost:5000/a/b:mine"
        );
        for other in ["oci://", "oci://b", "oci://h/A B", "oci://h/../x"] {
            RegistryPlace::read(other).unwrap_err();
        }
    }

    #[test]
    fn only_the_password_of_that_registry_is_taken() {
        let text = r#"{"auths": {"r.example": {"auth": "dTpwOnE="}, "x": {}}}"#;
        assert_eq!(
            kept_auth(text, "r.example"),
            Some(RegistryAuth::Basic("u".to_owned(), "p:q".to_owned()))
        );
        for other in ["x", "example", "other.example"] {
            assert_eq!(kept_auth(text, other), None);
        }
    }
}
