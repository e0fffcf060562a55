//! The requests to a registry of container images that packages need, of its distribution specification:
//! manifests, tags, blobs.
//!
//! What a registry answers is bounded in bytes and in time. Nothing goes to a place where others can read
//! it, unless that is on this machine. What is in a manifest is not known here.

use std::time::Duration;

use bytes::Bytes;
use conjure_config::error_chain::with_causes;
use conjure_plugins::Sha256;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, IF_NONE_MATCH, LOCATION,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::RwLock;

use crate::http;
use crate::registry_answer::{ANSWER_TIME, RegistryError, check_status, send};
use crate::registry_login::{RegistryAccess, authorization};

/// The form of the manifests that are written.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// All that may be where a manifest is looked for.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";

/// The most bytes of a manifest, or of a page of tags: what registries take of a manifest.
const ANSWER_LIMIT: u64 = 4 * 1024 * 1024;
/// The fewest bytes a second at which something is sent.
const MIN_BYTES_PER_SECOND: u64 = 32 * 1024;

/// How many tags are asked for at once, and how many there may be; a longer tag is none.
const TAGS_PER_PAGE: usize = 1_000;
const MAX_TAGS: usize = 100_000;
const MAX_TAG_LENGTH: usize = 128;

/// A manifest that a registry has.
pub(crate) struct FoundManifest {
    pub(crate) bytes: Vec<u8>,
    /// `sha256:` and the digest of these bytes.
    pub(crate) digest: String,
}

/// A repository of a registry.
pub(crate) struct RegistryClient {
    /// The registry: `https://HOST/v2/`.
    base: Url,
    repository: String,
    client: Client,
    /// For what is sent, in which time nothing comes back.
    uploads: Client,
    auth: RegistryAuth,
    access: RegistryAccess,
    /// What requests say of who sends them; another one where the registry takes it no more.
    authorization: RwLock<Option<HeaderValue>>,
}

#[derive(Deserialize)]
struct TagList {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl RegistryClient {
    /// Asks the registry what it wants to know, and logs in: encrypted, but for a registry on this machine.
    pub(crate) async fn connect(
        reference: &Reference,
        auth: &RegistryAuth,
        access: RegistryAccess,
    ) -> Result<Self, RegistryError> {
        let base = base(reference.resolve_registry())?;
        let client = |silence| {
            http::client(silence).map_err(|error| RegistryError::Failed(error.to_string()))
        };
        let (client, uploads) = (client(Some(http::IDLE_TIMEOUT))?, client(None)?);
        let repository = reference.repository().to_owned();
        let authorization = authorization(&client, &base, &repository, auth, access).await?;
        Ok(Self {
            base,
            repository,
            client,
            uploads,
            auth: auth.clone(),
            access,
            authorization: RwLock::new(authorization),
        })
    }

    /// Sends a request; once more after another login where the registry takes the one before no more, as
    /// it does with a token whose time is over.
    async fn send(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        let again = request.try_clone();
        let answer = send(self.authorize(request).await?).await?;
        let is_refused = answer.status() == StatusCode::UNAUTHORIZED;
        let is_registry = answer.url().origin() == self.base.origin();
        let again = again.filter(|_| is_refused && is_registry);
        let has_login = self.has_login().await;
        let Some(again) = again.filter(|_| has_login) else {
            return Ok(answer);
        };
        let (base, repository) = (&self.base, &self.repository);
        let new = authorization(&self.client, base, repository, &self.auth, self.access);
        *self.authorization.write().await = Box::pin(new).await?;
        send(self.authorize(again).await?).await
    }

    /// Whether requests say who sends them.
    pub(crate) async fn has_login(&self) -> bool {
        self.authorization.read().await.is_some()
    }

    /// What a request is answered, at most so many bytes.
    async fn fetch(&self, request: RequestBuilder, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let answer = check_status(self.send(request).await?).await?;
        let answer = http::read_body(answer, limit).await;
        answer.map_err(RegistryError::Failed)
    }

    /// The manifest that a reference names: the very one where it says a digest.
    pub(crate) async fn manifest(
        &self,
        reference: &Reference,
    ) -> Result<FoundManifest, RegistryError> {
        let name = reference.digest().or_else(|| reference.tag());
        let url = self.url(&format!("manifests/{}", name.unwrap_or("latest")))?;
        let request = self.client.request(Method::GET, url);
        let request = request.header(ACCEPT, MANIFESTS).timeout(ANSWER_TIME);
        let bytes = self.fetch(request, ANSWER_LIMIT).await?;
        let digest = digest(&bytes);
        match reference.digest() {
            Some(wanted) if wanted != digest => Err(RegistryError::Failed(format!(
                "its manifest has the digest {digest}, and {wanted} was asked for"
            ))),
            _ => Ok(FoundManifest { bytes, digest }),
        }
    }

    /// The tags of the repository, as often as the registry says each.
    pub(crate) async fn tags(&self) -> Result<Vec<String>, RegistryError> {
        let mut tags: Vec<String> = Vec::new();
        while tags.len() < MAX_TAGS {
            let mut url = self.url("tags/list")?;
            url.query_pairs_mut()
                .append_pair("n", &TAGS_PER_PAGE.to_string());
            if let Some(last) = tags.last() {
                url.query_pairs_mut().append_pair("last", last);
            }
            let request = self.client.request(Method::GET, url);
            let page = request.timeout(ANSWER_TIME);
            let page = self.fetch(page, ANSWER_LIMIT).await?;
            let page = serde_json::from_slice::<TagList>(&page).map_err(|error| {
                RegistryError::Failed(format!("its list of tags cannot be read ({error})"))
            })?;
            let mut page = page.tags.unwrap_or_default();
            page.retain(|tag| tag.len() <= MAX_TAG_LENGTH);
            // One that knows no pages says the same again.
            let is_over = page.is_empty() || page.last() == tags.last();
            tags.extend(page);
            if is_over {
                break;
            }
        }
        Ok(tags)
    }

    /// A blob of at most so many bytes.
    pub(crate) async fn blob(&self, wanted: &str, limit: u64) -> Result<Vec<u8>, RegistryError> {
        let url = self.url(&format!("blobs/{wanted}"))?;
        let request = self.client.request(Method::GET, url);
        let bytes = self.fetch(request, limit).await?;
        let digest = digest(&bytes);
        match digest == wanted {
            true => Ok(bytes),
            false => Err(RegistryError::Failed(format!(
                "what it gives has the digest {digest}, and {wanted} was asked for"
            ))),
        }
    }

    /// Puts a blob there, where it is not there yet.
    pub(crate) async fn push_blob(&self, bytes: Bytes) -> Result<(), RegistryError> {
        let digest = digest(&bytes);
        let url = self.url(&format!("blobs/{digest}"))?;
        let request = self.client.request(Method::HEAD, url);
        let there = self.send(request.timeout(ANSWER_TIME)).await;
        if there.is_ok_and(|there| there.status() == StatusCode::OK) {
            return Ok(());
        }
        let url = self.url("blobs/uploads/")?;
        let request = self.client.request(Method::POST, url);
        let request = request.header(CONTENT_LENGTH, 0).timeout(ANSWER_TIME);
        let mut place = self.upload_url(&check_status(self.send(request).await?).await?)?;
        place.query_pairs_mut().append_pair("digest", &digest);
        let seconds = ANSWER_TIME.as_secs() + bytes.len() as u64 / MIN_BYTES_PER_SECOND;
        let time = Duration::from_secs(seconds).min(http::TOTAL_TIMEOUT);
        let request = self.uploads.request(Method::PUT, place);
        let request = request.header(CONTENT_TYPE, "application/octet-stream");
        let request = request.body(bytes).timeout(time);
        check_status(self.send(request).await?).await?;
        Ok(())
    }

    /// Where the registry wants what is put there.
    fn upload_url(&self, answer: &Response) -> Result<Url, RegistryError> {
        let named = answer.headers().get(LOCATION);
        let named = named.and_then(|place| place.to_str().ok());
        let place = named.and_then(|named| answer.url().join(named).ok());
        let place = place.ok_or_else(|| {
            RegistryError::Failed("it does not say where a file is to be put".to_owned())
        })?;
        match http::is_less_private(&self.base, &place) {
            true => Err(RegistryError::Failed(format!(
                "it wants the package at {}, where others can alter it on its way",
                http::redacted_url(&place)
            ))),
            false => Ok(place),
        }
    }

    /// Has a reference lead to a manifest; where it `is_new` only if it leads to nothing yet, as far as the
    /// registry heeds that.
    pub(crate) async fn push_manifest(
        &self,
        reference: &Reference,
        manifest: Vec<u8>,
        is_new: bool,
    ) -> Result<(), RegistryError> {
        let name = reference.digest().or_else(|| reference.tag());
        let url = self.url(&format!("manifests/{}", name.unwrap_or("latest")))?;
        let request = self.client.request(Method::PUT, url);
        let mut request = request.header(CONTENT_TYPE, MANIFEST).body(manifest);
        if is_new {
            request = request.header(IF_NONE_MATCH, "*");
        }
        check_status(self.send(request.timeout(ANSWER_TIME)).await?).await?;
        Ok(())
    }

    fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let url = self.base.join(&format!("{}/{path}", self.repository));
        url.map_err(|error| RegistryError::Failed(error.to_string()))
    }

    /// A request that says who asks to nobody but the registry.
    async fn authorize(&self, request: RequestBuilder) -> Result<RequestBuilder, RegistryError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| RegistryError::Failed(with_causes(&error)));
        let mut request = request?;
        if request.url().origin() == self.base.origin()
            && let Some(authorization) = self.authorization.read().await.clone()
        {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        Ok(RequestBuilder::from_parts(client, request))
    }
}

/// Where a registry is, by its name.
fn base(registry: &str) -> Result<Url, RegistryError> {
    let read = |scheme: &str| Url::parse(&format!("{scheme}://{registry}/v2/"));
    let url = read("https").and_then(|url| match http::is_local(&url) {
        true => read("http"),
        false => Ok(url),
    });
    url.map_err(|error| RegistryError::Failed(format!("its name is no address ({error})")))
}

/// The digest of some bytes, as registries write it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::of(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registry_on_this_machine_is_spoken_to_without_encryption() {
        for (registry, scheme) in [
            ("localhost:5000", "http"),
            ("127.0.0.1:5000", "http"),
            ("r.example", "https"),
            ("127.0.0.1.example:5000", "https"),
        ] {
            assert_eq!(base(registry).unwrap().scheme(), scheme, "{registry}");
        }
    }
}
