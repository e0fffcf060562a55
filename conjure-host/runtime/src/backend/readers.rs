//! What the sources of a session offer beside tools, and how it is asked for: lists, resources,
//! prompts, completions.
//!
//! A backend has its lists in its catalog; a skill is asked for them. What one source fails to
//! say costs only its own share of a list.

use std::sync::Arc;
use std::time::Duration;

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

use super::request_context::{About, RequestContext};
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
    /// Whom host operations of the source find.
    pub(crate) call_id: Option<&'a Arc<str>>,
    /// For reading a resource, filling in a prompt, completing.
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) live: &'a LiveOutput,
}

/// Resources, templates and prompts of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceLists {
    /// The source's name.
    pub source: String,
    /// Its resources.
    pub resources: Vec<Resource>,
    /// Its resource templates, in the form of their source.
    pub templates: Vec<Value>,
    /// Its prompts.
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
    pub async fn resources(&self) -> Vec<SourceLists> {
        let asked = self.snapshot.sources().iter().map(|source| async move {
            let mut lists = self.named(source);
            match source {
                CatalogSource::Backend { catalog, .. } => {
                    lists.resources.clone_from(&catalog.resources);
                    lists.templates.clone_from(&catalog.resource_templates);
                }
                CatalogSource::Skill(_) if has(source, op::RESOURCE_LIST) => {
                    let listed: Result<Value, _> =
                        self.list(source, op::RESOURCE_LIST, Empty {}).await;
                    let listed = kept(source, op::RESOURCE_LIST, listed).unwrap_or_default();
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
        });
        join_all(asked).await
    }

    /// The prompts of each source.
    pub async fn prompts(&self) -> Vec<SourceLists> {
        let asked = self.snapshot.sources().iter().map(|source| async move {
            let mut lists = self.named(source);
            match source {
                CatalogSource::Backend { catalog, .. } => {
                    lists.prompts.clone_from(&catalog.prompts);
                }
                CatalogSource::Skill(_) if has(source, op::PROMPT_LIST) => {
                    let listed = self.list(source, op::PROMPT_LIST, Empty {}).await;
                    let listed: Option<Prompts> = kept(source, op::PROMPT_LIST, listed);
                    lists.prompts = listed.map(|listed| listed.prompts).unwrap_or_default();
                }
                CatalogSource::Skill(_) => {}
            }
            lists.prompts.truncate(MOST);
            lists
        });
        join_all(asked).await
    }

    /// Reads a resource: of the source that is known to have it, else of the first that gives it.
    /// What the first one says that only does not have it is the answer where nobody does.
    pub async fn read(&self, uri: &str) -> Result<ToolResult, ReadError> {
        let sources = self.snapshot.sources();
        let owner = owner(sources, uri);
        let is_owner = |at: usize| owner == Some(at);
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|at| !is_owner(*at));
        let mut refused = None;
        for at in order {
            let Some(source) = sources.get(at).filter(|it| has(it, op::RESOURCE_READ)) else {
                continue;
            };
            let body = ResourceRead {
                uri: uri.to_owned(),
            };
            match self
                .ask::<ToolResult>(source, op::RESOURCE_READ, body)
                .await
            {
                Err(ReadError::NotFound(_)) => {}
                // It only refused what may be another's.
                Ok(said) if said.is_error && !is_owner(at) => {
                    refused.get_or_insert(said);
                }
                answer => return answer,
            }
        }
        refused.ok_or_else(|| ReadError::NotFound(format!("there is no resource `{uri}`")))
    }

    /// Fills in a prompt of a source.
    pub async fn prompt(&self, source: &str, request: PromptGet) -> Result<PromptText, ReadError> {
        let name = request.name.clone();
        let found = self.source(source, op::PROMPT_GET);
        let found = found.ok_or_else(|| no_prompt(&name))?;
        self.ask(found, op::PROMPT_GET, request).await
    }

    /// Completes an argument: of a source's prompt, or of whoever knows the template. The reply is
    /// in the protocol's form.
    pub async fn complete(
        &self,
        source: Option<&str>,
        request: Complete,
    ) -> Result<Value, ReadError> {
        let fits = |known: &&CatalogSource| {
            has(known, op::COMPLETE) && source.is_none_or(|name| known.name() == name)
        };
        for known in self.snapshot.sources().iter().filter(fits) {
            match self.ask(known, op::COMPLETE, request.clone()).await {
                Err(ReadError::NotFound(_)) => {}
                answer => return answer,
            }
        }
        Ok(json!({ "values": [], "more": false }))
    }

    /// Tells the sources that a client wants to hear of a resource's changes, or does not any
    /// more.
    pub async fn subscribe(&self, uri: &str, on: bool) {
        let op = if on { SUBSCRIBE } else { UNSUBSCRIBE };
        let able = |source: &&CatalogSource| has(source, SUBSCRIBE);
        let asked = self.snapshot.sources().iter().filter(able);
        let asked = asked.map(|source| async move {
            let body = json!({ "uri": uri });
            let told: Result<Value, _> = self.list(source, op, body).await;
            if !matches!(told, Err(ReadError::NotFound(_))) {
                kept(source, op, told);
            }
        });
        join_all(asked).await;
    }

    /// The tools that a skill has at run time only; nothing when it has none such, or failed to
    /// say them.
    pub(crate) async fn skill_tools(&self, source: &CatalogSource) -> Option<Vec<ToolDecl>> {
        if !has(source, SKILL_TOOLS) {
            return None;
        }
        let listed: Result<Value, _> = self.list(source, SKILL_TOOLS, Empty {}).await;
        let listed = kept(source, SKILL_TOOLS, listed)?;
        let tools = listed.get("tools")?.as_array()?.iter().take(MOST);
        Some(
            tools
                .filter_map(|tool| serde_json::from_value(tool.clone()).ok())
                .collect(),
        )
    }

    fn named(&self, source: &CatalogSource) -> SourceLists {
        SourceLists {
            source: source.name().to_owned(),
            ..SourceLists::default()
        }
    }

    fn source(&self, name: &str, op: &str) -> Option<&CatalogSource> {
        let mut sources = self.snapshot.sources().iter();
        sources.find(|source| source.name() == name && has(source, op))
    }

    async fn list<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        self.within(source, op, body, LISTING.min(self.timeout))
            .await
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        source: &CatalogSource,
        op: &str,
        body: impl Serialize,
    ) -> Result<R, ReadError> {
        self.within(source, op, body, self.timeout).await
    }

    async fn within<R: DeserializeOwned>(
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
                lease.made().map_or(made, Arc::clone)
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
        let about = About {
            call_id: self.call_id.map(AsRef::as_ref),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            ..About::default()
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

/// The source that lists a resource, else the one with the URI template that says most about it.
fn owner(sources: &[CatalogSource], uri: &str) -> Option<usize> {
    let catalogs = || {
        let numbered = sources.iter().enumerate();
        numbered.filter_map(|(at, source)| match source {
            CatalogSource::Backend { catalog, .. } => Some((at, catalog)),
            CatalogSource::Skill(_) => None,
        })
    };
    let mut listing = catalogs().filter(|(_, catalog)| {
        let mut listed = catalog.resources.iter();
        listed.any(|resource| resource.uri == uri)
    });
    if let Some((at, _)) = listing.next() {
        return Some(at);
    }
    let ranked = catalogs().filter_map(|(at, catalog)| {
        let templates = catalog.resource_templates.iter();
        let texts = templates.filter_map(|template| template.get("uriTemplate")?.as_str());
        let rank = texts.filter_map(|text| uri_template::fits(text, uri)).max();
        Some((rank?, at))
    });
    // Of several that say the same the first.
    ranked
        .max_by_key(|(rank, at)| (*rank, std::cmp::Reverse(*at)))
        .map(|(_, at)| at)
}

fn no_prompt(name: &str) -> ReadError {
    ReadError::NotFound(format!("there is no prompt `{name}`"))
}

fn has(source: &CatalogSource, op: &str) -> bool {
    let capabilities = &source.manifest().capabilities;
    capabilities
        .iter()
        .any(|known| known.strip_suffix("/1") == Some(op))
}

/// What a source said; nothing where it failed, which the log says.
fn kept<R>(source: &CatalogSource, op: &str, answer: Result<R, ReadError>) -> Option<R> {
    answer
        .inspect_err(|error| tracing::warn!(source = source.name(), "{op}: {error}"))
        .ok()
}
