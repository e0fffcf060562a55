//! What the sources of a session offer beside tools, and how it is asked for: lists, resources,
//! prompts, completions.
//!
//! A backend has its lists in its catalog; a skill is asked for them. What one source fails to
//! say costs only its own share of a list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_abi::code;
use conjure_core::uri_template;
use conjure_skill_sdk::protocol::{
    Complete, Empty, Prompt, PromptGet, PromptText, Prompts, Resource, ResourceRead, Resources,
    ToolDecl, ToolResult, op,
};
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::request_context::{CallScope, RequestContext};
use super::resource_owners::{self, ResourceClaim, ResourceOwner};
use super::run::LiveOutput;
use super::snapshot::ToolSnapshot;
use super::sources::CatalogSource;
use conjure_plugins::{CallMeta, CallOptions, Emit, Instance, PluginCallFailure, emit_channel};

/// Time for a source to say what it has.
const LISTING: Duration = Duration::from_secs(10);
/// The most entries of one list of one source.
const MOST: usize = 5_000;

/// Asks to be told when a resource changes, and takes that back.
const SUBSCRIBE: &str = "resource.subscribe";
const UNSUBSCRIBE: &str = "resource.unsubscribe";
/// Lists the tools that a skill has at run time only.
const SKILL_TOOLS: &str = "skill.tools";

/// Asks the sources of a snapshot.
pub struct SourceReader<'a> {
    pub(crate) snapshot: &'a ToolSnapshot,
    pub(crate) request_context: &'a RequestContext,
    /// Id of the call that host operations of the source belong to.
    pub(crate) call_id: Option<&'a Arc<str>>,
    /// Time limit for reading a resource, filling in a prompt, completing.
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) live: &'a LiveOutput,
}

/// Resources, templates and prompts of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceLists {
    /// The source's name.
    pub source: String,
    /// Resources of the source.
    pub resources: Vec<Resource>,
    /// Resource templates, in the form of their source.
    pub templates: Vec<Value>,
    /// Prompts of the source.
    pub prompts: Vec<Prompt>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nobody has it.
    #[error("{0}")]
    NotFound(String),
    /// The arguments do not fit.
    #[error("{0}")]
    Invalid(String),
    /// The call was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// Whoever has it failed.
    #[error("{0}")]
    Failed(String),
}

impl SourceReader<'_> {
    /// The resources and templates of each source.
    #[boxed]
    pub async fn resources(&self) -> Vec<SourceLists> {
        let sources = self.snapshot.sources().iter();
        join_all(sources.map(|source| self.resources_of(source))).await
    }

    async fn resources_of(&self, source: &CatalogSource) -> SourceLists {
        let mut lists = self.empty_lists(source);
        match source {
            CatalogSource::Backend { catalog, .. } => {
                lists.resources.clone_from(&catalog.resources);
                lists.templates.clone_from(&catalog.resource_templates);
            }
            CatalogSource::Skill(_) if supports(source, op::RESOURCE_LIST) => {
                let listed: Result<Value, _> = self.list(source, op::RESOURCE_LIST, Empty {}).await;
                let listed = ok_or_log(source, op::RESOURCE_LIST, listed).unwrap_or_default();
                let templates = listed.get("resource_templates").and_then(Value::as_array);
                lists.templates = templates.cloned().unwrap_or_default();
                lists.resources = serde_json::from_value::<Resources>(listed)
                    .map(|listed| listed.resources)
                    .unwrap_or_default();
            }
            CatalogSource::Skill(_) => {}
        }
        lists.resources.truncate(MOST);
        lists.templates.truncate(MOST);
        lists
    }

    /// The prompts of each source.
    #[boxed]
    pub async fn prompts(&self) -> Vec<SourceLists> {
        let asked = self.snapshot.sources().iter().map(|source| async move {
            let mut lists = self.empty_lists(source);
            match source {
                CatalogSource::Backend { catalog, .. } => {
                    lists.prompts.clone_from(&catalog.prompts);
                }
                CatalogSource::Skill(_) if supports(source, op::PROMPT_LIST) => {
                    let listed = self.list(source, op::PROMPT_LIST, Empty {}).await;
                    let listed: Option<Prompts> = ok_or_log(source, op::PROMPT_LIST, listed);
                    lists.prompts = listed.map(|listed| listed.prompts).unwrap_or_default();
                }
                CatalogSource::Skill(_) => {}
            }
            lists.prompts.truncate(MOST);
            lists
        });
        join_all(asked).await
    }

    /// Reads a resource of the source that it belongs to. `linked` is the source whose result linked to
    /// it, if one did. What the first source says that does not have it is the answer where none does.
    ///
    /// # Errors
    /// When nobody has it, or several sources have one of this URI.
    #[boxed]
    pub async fn read(&self, uri: &str, linked: Option<&str>) -> Result<ToolResult, ReadError> {
        let claims = self.claims(uri, op::RESOURCE_READ).await;
        let owner = resource_owners::owner(&claims, uri, linked)?;
        let first = match &owner {
            ResourceOwner::Known(at) | ResourceOwner::Linked(at) => std::slice::from_ref(at),
            ResourceOwner::OneOf(sources) => sources,
        };
        let is_first = |claim: &&ResourceClaim| first.contains(&claim.at);
        let mut answer = self.read_from(claims.iter().filter(is_first), uri).await;
        // Whoever else has a template for it need not be asked where one that has it refused.
        let has_it = matches!(&answer, Some(Ok(said)) if !said.is_error);
        match owner {
            ResourceOwner::Linked(_) if !has_it => {
                let others = resource_owners::owner(&claims, uri, None)?;
                if let ResourceOwner::OneOf(sources) = others {
                    let others = |claim: &&ResourceClaim| {
                        sources.contains(&claim.at) && !first.contains(&claim.at)
                    };
                    let other = self.read_from(claims.iter().filter(others), uri).await;
                    answer = match other {
                        Some(Ok(said)) if !said.is_error => Some(Ok(said)),
                        Some(Err(error @ ReadError::Invalid(_))) => Some(Err(error)),
                        other => answer.or(other),
                    };
                }
            }
            _ if answer.is_none() => {
                // What another source lists is another resource.
                let others = |claim: &&ResourceClaim| !claim.is_listed && !is_first(claim);
                answer = self.read_from(claims.iter().filter(others), uri).await;
            }
            _ => {}
        }
        answer.unwrap_or_else(|| Err(ReadError::NotFound(format!("there is no resource `{uri}`"))))
    }

    /// Reads a resource of the one of these sources that gives it. Else the first refusal is the answer,
    /// and there is none where all say that it is not theirs.
    async fn read_from(
        &self,
        claims: impl Iterator<Item = &ResourceClaim>,
        uri: &str,
    ) -> Option<Result<ToolResult, ReadError>> {
        let asked = claims.filter_map(|claim| {
            let source = self.snapshot.sources().get(claim.at)?;
            let uri = uri.to_owned();
            Some(async move {
                let body = ResourceRead { uri };
                let answer = self.ask::<ToolResult>(source, op::RESOURCE_READ, body);
                (claim, answer.await)
            })
        });
        let (mut given, mut refused) = (Vec::new(), None);
        for (claim, answer) in join_all(asked).await {
            match answer {
                Err(ReadError::NotFound(_)) => {}
                Ok(said) if !said.is_error => given.push((claim, said)),
                // It only refused what may be another's.
                Ok(_) | Err(ReadError::Failed(_)) => {
                    refused.get_or_insert(answer);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        if given.len() > 1 {
            let givers: Vec<&ResourceClaim> = given.iter().map(|(claim, _)| *claim).collect();
            let error = resource_owners::ambiguous(uri, "is given by", &givers);
            return Some(Err(error));
        }
        given.pop().map(|(_, said)| Ok(said)).or(refused)
    }

    /// What the sources that know an operation say of a URI before they are asked for it. A skill is
    /// asked for its lists where another source may have it.
    async fn claims(&self, uri: &str, op: &str) -> Vec<ResourceClaim> {
        let numbered = self.snapshot.sources().iter().enumerate();
        let able: Vec<_> = numbered
            .filter(|(_, source)| supports(source, op))
            .collect();
        let is_alone = able.len() == 1;
        let claims = able.into_iter().map(|(at, source)| async move {
            let own;
            let (resources, templates): (&[Resource], &[Value]) = match source {
                CatalogSource::Backend { catalog, .. } => {
                    (&catalog.resources, &catalog.resource_templates)
                }
                CatalogSource::Skill(_) if is_alone => (&[], &[]),
                CatalogSource::Skill(_) => {
                    own = self.resources_of(source).await;
                    (&own.resources, &own.templates)
                }
            };
            let texts = templates.iter();
            let texts = texts.filter_map(|template| template.get("uriTemplate")?.as_str());
            ResourceClaim {
                at,
                name: source.name().to_owned(),
                is_backend: matches!(source, CatalogSource::Backend { .. }),
                is_listed: resources.iter().any(|resource| resource.uri == uri),
                rank: texts.filter_map(|text| uri_template::fits(text, uri)).max(),
            }
        });
        let mut claims = join_all(claims).await;
        // A skill that two backends bring is one.
        let mut skills = BTreeSet::new();
        claims.retain(|claim| claim.is_backend || skills.insert(claim.name.clone()));
        claims
    }

    /// Fills in a prompt of a source.
    #[boxed]
    pub async fn prompt(&self, source: &str, request: PromptGet) -> Result<PromptText, ReadError> {
        let name = request.name.clone();
        let found = self.source(source, op::PROMPT_GET);
        let found = found.ok_or_else(|| unknown_prompt(&name))?;
        self.ask(found, op::PROMPT_GET, request).await
    }

    /// Completes an argument: of a source's prompt, or of whoever knows the template. The reply is
    /// in the protocol's form.
    #[boxed]
    pub async fn complete(
        &self,
        source: Option<&str>,
        request: Complete,
    ) -> Result<Value, ReadError> {
        let fits = |known: &&CatalogSource| {
            supports(known, op::COMPLETE) && source.is_none_or(|name| known.name() == name)
        };
        for known in self.snapshot.sources().iter().filter(fits) {
            match self.ask(known, op::COMPLETE, request.clone()).await {
                Err(ReadError::NotFound(_)) => {}
                answer => return answer,
            }
        }
        Ok(json!({ "values": [], "more": false }))
    }

    /// Tells the sources that a client wants to hear of a resource's changes, maybe once more, or
    /// does not any more. Where it is known whose the resource is, another source's refusal is none.
    /// `linked` is as for [`Self::read`].
    ///
    /// # Errors
    /// Why a source that has the resource tells of no changes, where no other one does; or that several
    /// sources have one of this URI.
    #[boxed]
    pub async fn subscribe(
        &self,
        uri: &str,
        on: bool,
        linked: Option<&str>,
    ) -> Result<(), ReadError> {
        let sources = self.snapshot.sources();
        let op = if on { SUBSCRIBE } else { UNSUBSCRIBE };
        let claims = self.claims(uri, op::RESOURCE_READ).await;
        let owners = match on.then(|| resource_owners::owner(&claims, uri, linked)) {
            Some(owner) => match owner? {
                ResourceOwner::Known(at) | ResourceOwner::Linked(at) => vec![at],
                ResourceOwner::OneOf(owners) => owners,
            },
            None => Vec::new(),
        };
        let may_have_it = |at: usize| owners.is_empty() || owners.contains(&at);
        // What another source lists is another resource, whose changes nobody asked for.
        let is_others = |at: usize| {
            let mut claims = claims.iter();
            on && !may_have_it(at) && claims.any(|claim| claim.at == at && claim.is_listed)
        };
        let numbered = sources.iter().enumerate();
        let asked = numbered.filter(|(at, source)| supports(source, SUBSCRIBE) && !is_others(*at));
        let asked = asked.map(|(at, source)| {
            let may_have_it = may_have_it(at);
            async move {
                let body = json!({ "uri": uri });
                let told: Result<Value, _> = self.list(source, op, body).await;
                let told = told.inspect_err(|error| {
                    if !matches!(error, ReadError::NotFound(_)) {
                        tracing::warn!(source = source.name(), "{op}: {error}");
                    }
                });
                (may_have_it, told)
            }
        });
        combine_answers(join_all(asked).await)
    }

    /// The tools that a skill has at run time only; nothing when it has none such, or failed to
    /// say them.
    pub(crate) async fn skill_tools(&self, source: &CatalogSource) -> Option<Vec<ToolDecl>> {
        if !supports(source, SKILL_TOOLS) {
            return None;
        }
        let listed: Result<Value, _> = self.list(source, SKILL_TOOLS, Empty {}).await;
        let listed = ok_or_log(source, SKILL_TOOLS, listed)?;
        let tools = listed.get("tools")?.as_array()?.iter().take(MOST);
        Some(
            tools
                .filter_map(|tool| serde_json::from_value(tool.clone()).ok())
                .collect(),
        )
    }

    fn empty_lists(&self, source: &CatalogSource) -> SourceLists {
        SourceLists {
            source: source.name().to_owned(),
            ..SourceLists::default()
        }
    }

    fn source(&self, name: &str, op: &str) -> Option<&CatalogSource> {
        let mut sources = self.snapshot.sources().iter();
        sources.find(|source| source.name() == name && supports(source, op))
    }

    async fn list<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        self.ask_within_deadline(source, op, body, LISTING.min(self.timeout))
            .await
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        self.ask_within_deadline(source, op, body, self.timeout)
            .await
    }

    async fn ask_within_deadline<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
        deadline: Duration,
    ) -> Result<R, ReadError> {
        let mut entered = None;
        let instance = match source {
            CatalogSource::Skill(lease) => {
                let made = lease
                    .instance(self.request_context)
                    .await
                    .map_err(ReadError::Failed)?;
                entered = lease.enter().await;
                // The instance of shared state may be another one after the wait.
                lease.current_instance().map_or(made, Arc::clone)
            }
            CatalogSource::Backend { lease, .. } => Arc::clone(lease.serving().await),
        };
        let reply = self.request(&instance, op, &body, deadline).await?;
        drop(entered);
        serde_json::from_slice(&reply).map_err(|error| {
            let plugin = instance.plugin().id();
            ReadError::Failed(format!("{plugin}: its reply to {op} does not fit: {error}"))
        })
    }

    async fn request(
        &self,
        instance: &Instance,
        op: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<Vec<u8>, ReadError> {
        let about = CallScope {
            call_id: self.call_id.map(AsRef::as_ref),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            ..CallScope::default()
        };
        let json = self.request_context.request(about, body);
        let json = json.map_err(|error| ReadError::Failed(error.to_string()))?;
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            deadline: Some(deadline),
            sink: Some(sink),
            cancel: self.cancel.clone(),
            meta: CallMeta {
                session: Some(Arc::clone(&self.request_context.session)),
                call_id: self.call_id.cloned(),
                turn_id: None,
            },
        };
        let answer = instance.request(op, json, options);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                Some(Emit { kind, bytes }) = stream.next() => (self.live)(kind, &bytes),
                answer = &mut answer => break answer,
            }
        };
        while let Some(Emit { kind, bytes }) = stream.try_next() {
            (self.live)(kind, &bytes);
        }
        answer.map_err(ReadError::from)
    }
}

impl From<PluginCallFailure> for ReadError {
    fn from(failure: PluginCallFailure) -> Self {
        let text = failure.to_string();
        match failure {
            PluginCallFailure::Fault { code, .. } if code == code::NOT_FOUND => {
                Self::NotFound(text)
            }
            PluginCallFailure::Fault { code, .. } if code == code::INVALID => Self::Invalid(text),
            PluginCallFailure::Cancelled { .. } => Self::Cancelled(text),
            _ => Self::Failed(text),
        }
    }
}

/// What several sources come to that were told of a wish, each with whether it may have the resource:
/// one that took it is enough, and one that has something else has nothing to refuse.
fn combine_answers(told: Vec<(bool, Result<Value, ReadError>)>) -> Result<(), ReadError> {
    let is_taken = told.iter().any(|(_, told)| told.is_ok());
    let mut refused = told.into_iter().filter_map(|(may_have_it, told)| {
        let error = told.err()?;
        (may_have_it && !matches!(error, ReadError::NotFound(_))).then_some(error)
    });
    match refused.next().filter(|_| !is_taken) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn unknown_prompt(name: &str) -> ReadError {
    ReadError::NotFound(format!("there is no prompt `{name}`"))
}

fn supports(source: &CatalogSource, op: &str) -> bool {
    let capabilities = &source.manifest().capabilities;
    capabilities
        .iter()
        .any(|known| known.strip_suffix("/1") == Some(op))
}

/// What a source said; nothing where it failed, which the log says.
fn ok_or_log<R>(source: &CatalogSource, op: &str, answer: Result<R, ReadError>) -> Option<R> {
    answer
        .inspect_err(|error| tracing::warn!(source = source.name(), "{op}: {error}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_that_one_source_takes_is_taken() {
        let unknown = || Err(ReadError::NotFound("it is not mine".to_owned()));
        let deaf = || Err(ReadError::Invalid("it tells of nothing".to_owned()));
        assert_eq!(combine_answers(vec![]), Ok(()));
        assert_eq!(combine_answers(vec![(true, unknown())]), Ok(()));
        assert_eq!(
            combine_answers(vec![(true, deaf()), (false, Ok(json!({})))]),
            Ok(())
        );
        assert_eq!(
            combine_answers(vec![(true, unknown()), (true, deaf())]),
            deaf().map(drop)
        );
        // It is known to be another source's, which is told nothing because it tells by itself.
        assert_eq!(combine_answers(vec![(false, deaf())]), Ok(()));
    }
}
