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
    Complete, Empty, Prompt, PromptGet, PromptText, Prompts, Resource, ResourceRead, ToolDecl,
    ToolResult, op,
};
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::request_context::RequestContext;
use super::resource_owners::{self, Ambiguity, ResourceClaim, ResourceOwner, SourceName};
use super::run::LiveOutput;
use super::snapshot::ToolSnapshot;
use super::source_requests::{SourceRequests, resources_within};
use super::sources::CatalogSource;
use conjure_plugins::PluginCallFailure;

/// Time for a source to say what it has.
pub(super) const LISTING: Duration = Duration::from_secs(10);
/// Time for skills to say whether they have what a backend lists, all of them beside each other.
const LISTING_BESIDE: Duration = Duration::from_secs(1);
/// The most entries of one list of one source.
pub(super) const MOST: usize = 5_000;

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
        let limit = LISTING.min(self.timeout);
        self.requests().resources(source, limit).await
    }

    /// The prompts of each source.
    #[boxed]
    pub async fn prompts(&self) -> Vec<SourceLists> {
        let asked = self.snapshot.sources().iter().map(|source| async move {
            let mut lists = SourceLists::empty(source);
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

    /// Reads a resource of the source that it belongs to. `links` are the sources whose results linked to
    /// it. What the first source says that does not have it is the answer where none does.
    ///
    /// # Errors
    /// When nobody has it, or several sources have one of this URI.
    #[boxed]
    pub async fn read(&self, uri: &str, links: &[SourceName]) -> Result<ToolResult, ReadError> {
        let claims = self.claims(uri, links).await;
        let owner = resource_owners::owner(&claims, uri, links)?;
        let first = match &owner {
            ResourceOwner::Known(at) | ResourceOwner::Linked(at) => std::slice::from_ref(at),
            ResourceOwner::OneOf(sources) => sources,
        };
        let is_first = |claim: &&ResourceClaim| first.contains(&claim.at);
        let mut answer = self.read_from(claims.iter().filter(is_first), uri).await;
        // Whoever else has a template for it need not be asked where one that has it refused.
        let has_it = matches!(&answer, Some(Ok(read)) if !read.is_error);
        match owner {
            ResourceOwner::Linked(_) if !has_it => {
                let others = claims.iter().filter(|claim| !is_first(claim));
                answer = match self.read_from(others, uri).await {
                    Some(Ok(read)) if !read.is_error => Some(Ok(read)),
                    Some(Err(error @ ReadError::Invalid(_))) => Some(Err(error)),
                    other => answer.or(other),
                };
            }
            _ => {
                // Sources that list it come before the rest.
                for is_listed in [true, false] {
                    if answer.is_none() {
                        let others = claims.iter().filter(|claim| claim.is_listed == is_listed);
                        let others = others.filter(|claim| !is_first(claim));
                        answer = self.read_from(others, uri).await;
                    }
                }
            }
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
        let requests = claims.filter_map(|claim| {
            let source = self.snapshot.sources().get(claim.at)?;
            let uri = uri.to_owned();
            Some(async move {
                let body = ResourceRead { uri };
                let answer = self.ask::<ToolResult>(source, op::RESOURCE_READ, body);
                (claim, answer.await)
            })
        });
        let (mut given, mut refused) = (Vec::new(), None);
        for (claim, answer) in join_all(requests).await {
            match answer {
                Err(ReadError::NotFound(_)) => {}
                Ok(read) if !read.is_error => given.push((claim, read)),
                // It only refused what may be another's.
                Ok(_) | Err(ReadError::Failed(_)) => {
                    refused.get_or_insert(answer);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        if given.len() > 1 {
            let givers: Vec<&ResourceClaim> = given.iter().map(|(claim, _)| *claim).collect();
            let error = resource_owners::ambiguous(uri, Ambiguity::Given, &givers);
            return Some(Err(error));
        }
        given.pop().map(|(_, read)| Ok(read)).or(refused)
    }

    /// What the sources that read resources say of a URI before they are asked for it. A skill is asked
    /// for its lists where another source may have it; where a backend lists it, a skill that did not link
    /// to it has a short time for that only.
    async fn claims(&self, uri: &str, links: &[SourceName]) -> Vec<ResourceClaim> {
        let numbered = self.snapshot.sources().iter().enumerate();
        let able: Vec<_> = numbered
            .filter(|(_, source)| supports(source, op::RESOURCE_READ))
            .collect();
        let is_alone = able.len() == 1;
        let is_in_catalog = able.iter().any(|(_, source)| match source {
            CatalogSource::Backend { catalog, .. } => lists(&catalog.resources, uri),
            CatalogSource::Skill(_) => false,
        });
        let claims = able.into_iter().map(|(at, source)| async move {
            let own;
            let (resources, templates): (&[Resource], &[Value]) = match source {
                CatalogSource::Backend { catalog, .. } => {
                    (&catalog.resources, &catalog.resource_templates)
                }
                CatalogSource::Skill(_) if is_alone => (&[], &[]),
                CatalogSource::Skill(_) => {
                    own = match is_in_catalog && !links.contains(&source.source_name()) {
                        true => {
                            resources_within(self.request_context, source, LISTING_BESIDE).await
                        }
                        false => self.resources_of(source).await,
                    };
                    (&own.resources, &own.templates)
                }
            };
            let texts = templates.iter();
            let texts = texts.filter_map(|template| template.get("uriTemplate")?.as_str());
            ResourceClaim {
                at,
                source: source.source_name(),
                is_listed: lists(resources, uri),
                rank: texts.filter_map(|text| uri_template::fits(text, uri)).max(),
            }
        });
        let mut claims = join_all(claims).await;
        // A skill that two backends bring is one.
        let mut skills = BTreeSet::new();
        claims.retain(|claim| match &claim.source {
            SourceName::Backend(_) => true,
            SourceName::Skill(name) => skills.insert(name.clone()),
        });
        claims
    }

    /// Fills in a prompt of a source.
    #[boxed]
    pub async fn prompt(&self, source: &str, request: PromptGet) -> Result<PromptText, ReadError> {
        let name = request.name.clone();
        let found = self.snapshot.find_prompt_source(source);
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
    /// does not any more. Where it is known whose the resource is, others are told only if that one does
    /// not have it. `links` is as for [`Self::read`].
    ///
    /// # Errors
    /// Why a source that has the resource tells of no changes, where no other one does; or that several
    /// sources have one of this URI.
    #[boxed]
    pub async fn subscribe(
        &self,
        uri: &str,
        on: bool,
        links: &[SourceName],
    ) -> Result<(), ReadError> {
        if !on {
            let answers = self.set_subscriptions(uri, on, |_| true).await;
            return combine_answers(answers, |_| true);
        }
        let claims = self.claims(uri, links).await;
        let owner = resource_owners::owner(&claims, uri, links)?;
        let (owners, is_known) = match owner {
            ResourceOwner::Known(at) => (vec![at], true),
            ResourceOwner::Linked(at) => (vec![at], false),
            ResourceOwner::OneOf(owners) => (owners, false),
        };
        let is_owner = |at| owners.is_empty() || owners.contains(&at);
        let mut answers = self
            .set_subscriptions(uri, on, |at| !is_known || is_owner(at))
            .await;
        let lacks_it = |(_, answer): &(_, _)| matches!(answer, Err(ReadError::NotFound(_)));
        if is_known && !answers.is_empty() && answers.iter().all(lacks_it) {
            let others = self.set_subscriptions(uri, on, |at| !is_owner(at));
            answers.extend(others.await);
        }
        let lists_it = |at| claims.iter().any(|claim| claim.at == at && claim.is_listed);
        combine_answers(answers, |at| is_owner(at) || lists_it(at))
    }

    /// Sets a subscription at those of the sources that it concerns, or takes it back there. Gives the
    /// answer of each by its number.
    async fn set_subscriptions(
        &self,
        uri: &str,
        on: bool,
        is_concerned: impl Fn(usize) -> bool,
    ) -> Vec<(usize, Result<Value, ReadError>)> {
        let op = if on { SUBSCRIBE } else { UNSUBSCRIBE };
        let sources = self.snapshot.sources().iter().enumerate();
        let able = sources.filter(|(_, source)| takes_subscriptions(source, on));
        let concerned = able.filter(|(at, _)| is_concerned(*at));
        let requests = concerned.map(|(at, source)| async move {
            let answer: Result<Value, _> = self.list(source, op, json!({ "uri": uri })).await;
            let answer = answer.inspect_err(|error| {
                if !matches!(error, ReadError::NotFound(_)) {
                    tracing::warn!(source = source.name(), "{op}: {error}");
                }
            });
            (at, answer)
        });
        join_all(requests).await
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

    fn requests(&self) -> SourceRequests<'_> {
        SourceRequests {
            request_context: self.request_context,
            call_id: self.call_id,
            cancel: self.cancel,
            live: self.live,
        }
    }

    async fn list<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        let limit = LISTING.min(self.timeout);
        self.requests().ask(source, op, body, limit).await
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        self.requests().ask(source, op, body, self.timeout).await
    }
}

impl SourceLists {
    /// Nothing of a source.
    pub(super) fn empty(source: &CatalogSource) -> Self {
        Self {
            source: source.name().to_owned(),
            ..Self::default()
        }
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

/// What the answers of several sources to a wish come to, each with the number of its source: one that
/// took it is enough, and one that has something else has nothing to refuse.
fn combine_answers(
    answers: Vec<(usize, Result<Value, ReadError>)>,
    may_have_it: impl Fn(usize) -> bool,
) -> Result<(), ReadError> {
    let is_taken = answers.iter().any(|(_, answer)| answer.is_ok());
    let mut refused = answers.into_iter().filter_map(|(at, answer)| {
        let error = answer.err()?;
        (may_have_it(at) && !matches!(error, ReadError::NotFound(_))).then_some(error)
    });
    match refused.next().filter(|_| !is_taken) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn unknown_prompt(name: &str) -> ReadError {
    ReadError::NotFound(format!("there is no prompt `{name}`"))
}

fn lists(resources: &[Resource], uri: &str) -> bool {
    resources.iter().any(|resource| resource.uri == uri)
}

/// Whether a source takes a subscription, or has one to take back. No skill begins for that which has no
/// resources by its manifest, nor for taking back what it never got.
fn takes_subscriptions(source: &CatalogSource, on: bool) -> bool {
    let is_there = match source {
        CatalogSource::Skill(lease) => lease.has_state(),
        CatalogSource::Backend { .. } => true,
    };
    supports(source, SUBSCRIBE) && (is_there || (on && supports(source, op::RESOURCE_READ)))
}

pub(super) fn supports(source: &CatalogSource, op: &str) -> bool {
    let capabilities = &source.manifest().capabilities;
    capabilities
        .iter()
        .any(|known| known.strip_suffix("/1") == Some(op))
}

/// What a source said; nothing where it failed, which the log says.
pub(super) fn ok_or_log<R>(
    source: &CatalogSource,
    op: &str,
    answer: Result<R, ReadError>,
) -> Option<R> {
    answer
        .inspect_err(|error| tracing::warn!(source = source.name(), "{op}: {error}"))
        .ok()
}

#[cfg(test)]
mod tests;
