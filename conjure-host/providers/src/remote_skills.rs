//! Skills that a provider keeps: Anthropic's Skills API.
//!
//! Reads the shapes of today and those of the beta, which gateways still have.

use async_recursion::async_recursion as boxed;
use conjure_core::wire::Wire;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde::Serialize;
use serde_json::Value;

use super::http::{AttemptError, with_retries};
use super::http_provider::HttpProvider;
use super::sse_reply;
use super::{Provider as _, ProviderError, ReplySink};

/// The most pages of a list.
const PAGES: usize = 200;
/// How many entries a page is to have; the beta takes no more.
const PAGE: usize = 100;
/// The most bytes of an answer.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// What a package is asked for as: today's API has no way to it.
const BETA: &str = "skills-2025-10-02";
/// What a package begins with.
const ZIP: &[u8] = b"PK\x03\x04";
/// The most bytes of a skill, unpacked.
const SKILL_BYTES: usize = 30 * 1000 * 1000;

/// A skill that the provider keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteSkill {
    /// What requests call it: `skill_…`, or a name of the provider's own.
    pub id: String,
    /// What people call it.
    pub title: Option<String>,
    /// `custom`, `anthropic` and so on.
    pub source: String,
    /// Latest version of the skill.
    pub latest_version: Option<String>,
    /// When it was made, as the provider says it.
    pub created_at: Option<String>,
}

/// A version of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteVersion {
    /// What requests call it.
    pub version: String,
    /// The skill's name in it.
    pub name: Option<String>,
    /// Purpose of the skill, as this version describes it.
    pub description: Option<String>,
    /// When it was made, as the provider says it.
    pub created_at: Option<String>,
}

/// A version of a skill, packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillPackage {
    /// The version that it is.
    pub version: RemoteVersion,
    /// A ZIP archive, as the provider made it: nobody has looked into it.
    pub bytes: Vec<u8>,
}

/// A skill to upload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkillUpload {
    /// What people call it.
    pub title: Option<String>,
    /// The skill's name; all its files go below a directory of this name.
    pub name: String,
    /// Paths below that directory, `/` between components, with their content.
    pub files: Vec<(String, Vec<u8>)>,
}

impl HttpProvider {
    /// The skills that the provider keeps, in its own order; of one source (`custom`,
    /// `anthropic`) or all.
    ///
    /// # Errors
    /// As for a request; of kind `unsupported` where the provider has no Skills API.
    #[boxed]
    pub async fn remote_skills(
        &self,
        source: Option<&str>,
    ) -> Result<Vec<RemoteSkill>, ProviderError> {
        let filter = source.map_or(String::new(), |source| format!("&source={source}"));
        let listed = self.all("skills", &filter).await?;
        Ok(listed.iter().filter_map(skill).collect())
    }

    /// The versions of a skill.
    ///
    /// # Errors
    /// As [`HttpProvider::remote_skills`].
    #[boxed]
    pub async fn remote_versions(&self, id: &str) -> Result<Vec<RemoteVersion>, ProviderError> {
        self.check_id(id)?;
        let listed = self.all(&format!("skills/{id}/versions"), "").await?;
        Ok(listed.iter().filter_map(version).collect())
    }

    /// Uploads a skill: a new one, or a new version of the one with this id. Gives the skill's id
    /// and the version. Is never sent twice: a second one would be another skill.
    ///
    /// # Errors
    /// As [`HttpProvider::remote_skills`]; of kind `too_large` before anything is sent when the
    /// files have 30 MB or more.
    #[boxed]
    pub async fn upload_skill(
        &self,
        upload: &SkillUpload,
        of: Option<&str>,
    ) -> Result<(String, Option<String>), ProviderError> {
        self.check_file_api()?;
        let size: usize = upload.files.iter().map(|(_, bytes)| bytes.len()).sum();
        if size >= SKILL_BYTES {
            return Err(self.error(
                "too_large",
                format!(
                    "the skill `{}` has {size} bytes, and less than {SKILL_BYTES} are taken; \
                     leave files out",
                    upload.name
                ),
            ));
        }
        let mut form = Form::new().percent_encode_noop();
        if let (Some(title), None) = (&upload.title, of) {
            form = form.text("display_name", title.clone());
        }
        for (path, bytes) in &upload.files {
            let part = Part::bytes(bytes.clone()).file_name(format!("{}/{path}", upload.name));
            let part = part.mime_str("application/octet-stream");
            let part = part.map_err(|error| self.error("protocol", error.to_string()))?;
            form = form.part("files[]", part);
        }
        let resource = match of {
            Some(id) => {
                self.check_id(id)?;
                format!("skills/{id}/versions")
            }
            None => "skills".to_owned(),
        };
        let sent = self
            .ask_once(Method::POST, &resource, Some(form), None)
            .await;
        let made = sent.map_err(|attempt| attempt.error)?;
        let (id, version) = match of {
            Some(id) => (Some(id.to_owned()), version(&made).map(|it| it.version)),
            None => {
                let made = skill(&made);
                let version = made.as_ref().and_then(|it| it.latest_version.clone());
                (made.map(|it| it.id), version)
            }
        };
        let nameless = || self.error("protocol", "it gave the skill no id".to_owned());
        Ok((id.ok_or_else(nameless)?, version))
    }

    /// Downloads a version of a skill, the latest unless another is named.
    ///
    /// # Errors
    /// As [`HttpProvider::remote_skills`]; of kind `too_large` for a package of more than 30 MB.
    #[boxed]
    pub async fn download_skill(
        &self,
        id: &str,
        of: Option<&str>,
    ) -> Result<SkillPackage, ProviderError> {
        self.check_file_api()?;
        self.check_id(id)?;
        let wrong = |what: &str| self.error("protocol", what.to_owned());
        let latest = match of {
            Some(version) => version.to_owned(),
            None => {
                let whole = self
                    .ask_with_retries(Method::GET, &format!("skills/{id}"), Some(BETA))
                    .await?;
                let latest = skill(&whole).and_then(|skill| skill.latest_version);
                latest.ok_or_else(|| wrong("it names no version of the skill"))?
            }
        };
        self.check_id(&latest)?;
        let resource = format!("skills/{id}/versions/{latest}");
        let told = self
            .ask_with_retries(Method::GET, &resource, Some(BETA))
            .await?;
        let version = version(&told).ok_or_else(|| wrong("it does not say which version it is"))?;
        let sink = ReplySink::new(|_| {}, |text| tracing::info!("{text}"));
        let resource = format!("{resource}/content");
        let bytes = with_retries(self.retry(), &sink, async || {
            let reply = self.ask(Method::GET, &resource, None, Some(BETA)).await?;
            let bounds = sse_reply::ReplyBounds {
                bytes: SKILL_BYTES + 1,
                ..self.bounds()
            };
            match sse_reply::read_bounded(reply, &bounds).await {
                (bytes, None) => Ok(bytes),
                (_, Some(cut)) => Err(AttemptError {
                    error: self.error("network", format!("the package broke off: {}", cut.reason)),
                    retryable: true,
                    retry_after: None,
                }),
            }
        })
        .await?;
        if bytes.len() > SKILL_BYTES {
            return Err(self.error(
                "too_large",
                format!("the package of `{id}` has more than {SKILL_BYTES} bytes"),
            ));
        }
        if !bytes.starts_with(ZIP) {
            return Err(wrong("what it sent is no ZIP archive"));
        }
        Ok(SkillPackage { version, bytes })
    }

    /// Deletes a skill with all its versions. Where the provider wants versions deleted first,
    /// they are.
    ///
    /// # Errors
    /// As [`HttpProvider::remote_skills`].
    #[boxed]
    pub async fn delete_skill(&self, id: &str) -> Result<(), ProviderError> {
        self.check_id(id)?;
        let whole = format!("skills/{id}");
        let Err(refused) = self.delete(&whole).await else {
            return Ok(());
        };
        if refused.kind != "bad_request" {
            return Err(refused);
        }
        let versions = self.remote_versions(id).await?;
        if versions.is_empty() || !refused.message.contains("version") {
            return Err(refused);
        }
        for version in versions {
            self.check_id(&version.version)?;
            self.delete(&format!("{whole}/versions/{}", version.version))
                .await?;
        }
        self.delete(&whole).await
    }

    pub(super) async fn delete(&self, resource: &str) -> Result<(), ProviderError> {
        self.ask_with_retries(Method::DELETE, resource, None)
            .await
            .map(drop)
    }

    /// Every entry of a list, page by page.
    pub(super) async fn all(
        &self,
        resource: &str,
        filter: &str,
    ) -> Result<Vec<Value>, ProviderError> {
        self.check_file_api()?;
        let mut all = Vec::new();
        let mut page = String::new();
        for _ in 0..PAGES {
            let resource = format!("{resource}?limit={PAGE}{filter}{page}");
            let body = self.ask_with_retries(Method::GET, &resource, None).await?;
            let data = body.get("data").and_then(Value::as_array);
            all.extend(data.into_iter().flatten().cloned());
            match text(&body, "next_page") {
                Some(next) if is_word(&next) => page = format!("&page={next}"),
                _ => break,
            }
        }
        Ok(all)
    }

    async fn ask_with_retries(
        &self,
        method: Method,
        resource: &str,
        beta: Option<&'static str>,
    ) -> Result<Value, ProviderError> {
        let sink = ReplySink::new(|_| {}, |text| tracing::info!("{text}"));
        with_retries(self.retry(), &sink, async || {
            self.ask_once(method.clone(), resource, None, beta).await
        })
        .await
    }

    async fn ask_once(
        &self,
        method: Method,
        resource: &str,
        form: Option<Form>,
        beta: Option<&'static str>,
    ) -> Result<Value, AttemptError> {
        let reply = self.ask(method, resource, form, beta).await?;
        let bounds = sse_reply::ReplyBounds {
            bytes: ANSWER_BYTES,
            ..self.bounds()
        };
        let (body, _cut) = sse_reply::read_bounded(reply, &bounds).await;
        serde_json::from_slice(&body).map_err(|error| AttemptError {
            error: self.error("protocol", format!("its answer is no JSON: {error}")),
            retryable: false,
            retry_after: None,
        })
    }

    pub(super) fn check_file_api(&self) -> Result<(), ProviderError> {
        if self.wire() == Wire::Anthropic {
            return Ok(());
        }
        Err(self.error(
            "unsupported",
            "it keeps no skills and no files; only Anthropic has APIs for them".to_owned(),
        ))
    }

    pub(super) fn check_id(&self, id: &str) -> Result<(), ProviderError> {
        if is_word(id) {
            return Ok(());
        }
        Err(self.error("bad_request", format!("`{id}` is no id")))
    }

    fn error(&self, kind: &str, message: String) -> ProviderError {
        ProviderError::new(self.name(), kind, message)
    }
}

/// Whether a text can stand in a URL as it is.
fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.=".contains(&byte);
    !text.is_empty() && text.bytes().all(fits) && !text.starts_with('.')
}

pub(super) fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn skill(value: &Value) -> Option<RemoteSkill> {
    let source = value.get("source").unwrap_or(&Value::Null);
    Some(RemoteSkill {
        id: text(value, "id")?,
        title: text(value, "display_name").or_else(|| text(value, "display_title")),
        source: source
            .as_str()
            .map(str::to_owned)
            .or_else(|| text(source, "type"))
            .unwrap_or_default(),
        latest_version: text(value, "latest_version_id").or_else(|| text(value, "latest_version")),
        created_at: text(value, "created_at"),
    })
}

/// The beta addresses a version by a number beside its id.
fn version(value: &Value) -> Option<RemoteVersion> {
    Some(RemoteVersion {
        version: text(value, "version").or_else(|| text(value, "id"))?,
        name: text(value, "name"),
        description: text(value, "description"),
        created_at: text(value, "created_at"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b11_both_shapes_are_read() {
        let now = json!({
            "id": "skill_1", "type": "skill", "display_name": "Mine", "latest_version_id": "skver_1",
            "source": {"type": "custom"}, "created_at": "2026-08-20T00:00:00Z",
        });
        let beta = json!({
            "id": "skill_1", "type": "skill", "display_title": "Mine", "latest_version": "skver_1",
            "source": "custom", "created_at": "2026-08-20T00:00:00Z",
        });
        assert_eq!(skill(&now), skill(&beta));
        assert_eq!(skill(&now).unwrap().source, "custom");
        let named = |value: Value| version(&value).unwrap().version;
        assert_eq!(named(json!({"id": "skver_1"})), "skver_1");
        assert_eq!(
            named(json!({"id": "skillver_1", "version": "1759"})),
            "1759"
        );
    }

    #[test]
    fn an_id_is_no_path() {
        for id in ["", "..", "a/b", "a?b", "a b", ".a"] {
            assert!(!is_word(id), "{id}");
        }
        assert!(is_word("skill_01AbC-x"));
    }
}
