//! Resources, templates and prompts of a session's sources, as an MCP client sees them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use conjure_core::routing::ToolName;
use conjure_skill_sdk::protocol::{Prompt, Resource};
use rmcp::model::ErrorData;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use tokio_util::sync::CancellationToken;

use super::hidden_resources::{HiddenBy, HiddenResources};
use super::session::ClientSession;
use super::{files, passthrough};
use conjure_runtime::artifacts::Artifacts;
use conjure_runtime::backend::readers::SourceLists;
use conjure_runtime::backend::{LiveOutput, ToolSnapshot};
use conjure_runtime::session::{ToolCallOptions, ToolSession};

/// Entries of one page of a list.
const PAGE_SIZE: usize = 1000;
/// The most files of a session that are listed.
const MAX_FILES: usize = 1000;

/// All resources, those of the sources first; of two with one URI the first. What another one hides
/// is told in the log.
pub(super) fn resources(
    lists: &[SourceLists],
    hidden: &HiddenResources,
    artifacts: &Artifacts,
) -> Vec<Value> {
    let mut first: HashMap<&str, (&str, &str)> = HashMap::new();
    let mut behind: BTreeMap<HiddenBy<'_>, Vec<&str>> = BTreeMap::new();
    let mut resources = Vec::new();
    for source in lists {
        for listed in &source.resources {
            let uri = listed.uri.as_str();
            let owner = (source.source.as_str(), server(listed, &source.source));
            match first.entry(uri) {
                Entry::Vacant(free) => {
                    free.insert(owner);
                    resources.push(resource(listed));
                }
                Entry::Occupied(taken) => {
                    let (of, by) = (owner.1, taken.get().1);
                    if owner != *taken.get() {
                        behind
                            .entry(HiddenBy {
                                hidden_owner: of,
                                listed_owner: by,
                            })
                            .or_default()
                            .push(uri);
                    }
                }
            }
        }
    }
    hidden.log_new(&behind);
    let files = artifacts.list();
    let newest = files.len().saturating_sub(MAX_FILES);
    resources.extend(files.iter().skip(newest).map(files::resource));
    resources
}

/// The server that a source says a resource is of, else the source.
fn server<'a>(resource: &'a Resource, source: &'a str) -> &'a str {
    let server = resource.meta.as_ref().and_then(|meta| meta.get("server"));
    server.and_then(Value::as_str).unwrap_or(source)
}

/// All templates, and the one for files.
pub(super) fn templates(lists: &[SourceLists]) -> Vec<Value> {
    let listed = lists.iter().flat_map(|source| &source.templates);
    let mut templates: Vec<Value> = listed.cloned().collect();
    for template in templates.iter_mut().filter_map(Value::as_object_mut) {
        passthrough::clean_entry(template);
    }
    templates.push(files::template());
    templates
}

/// A prompt with the source that has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ServedPrompt {
    pub(super) source: String,
    /// Name at the source.
    pub(super) source_name: String,
    pub(super) prompt: Value,
}

/// All prompts by their served names: the own one where nobody else has it, else with the
/// source's name before it.
pub(super) fn prompts(lists: &[SourceLists]) -> BTreeMap<String, ServedPrompt> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let listed = || {
        let sources = lists.iter();
        sources.flat_map(|lists| lists.prompts.iter().map(|prompt| (&lists.source, prompt)))
    };
    for (_, prompt) in listed() {
        *counts.entry(&prompt.name).or_default() += 1;
    }
    let mut served = BTreeMap::new();
    for (source, prompt) in listed() {
        let name = match counts.get(prompt.name.as_str()) {
            Some(1) => prompt.name.clone(),
            _ => ToolName::derive(&format!("{source}_{}", prompt.name))
                .as_str()
                .to_owned(),
        };
        let entry = ServedPrompt {
            source: source.clone(),
            source_name: prompt.name.clone(),
            prompt: prompt_entry(prompt, &name),
        };
        served.entry(name).or_insert(entry);
    }
    served
}

/// A prompt by its served name. Right after the opening of a session a server behind may not have
/// said yet what it has, so one that is not there is waited for then.
///
/// # Errors
/// When there is none.
pub(super) async fn prompt(
    session: &ClientSession,
    calls: &ToolSession,
    cancel: &CancellationToken,
    name: &str,
) -> Result<ServedPrompt, ErrorData> {
    let mut revision = calls.revision();
    loop {
        let known = revision.borrow_and_update().prompts;
        let mut prompts = prompts(&fetch_lists(calls, cancel, SourceListKind::Prompts).await);
        if let Some(served) = prompts.remove(name) {
            return Ok(served);
        }
        let more_may_come = calls.snapshot().has_backends();
        let changed = revision.wait_for(|now| now.prompts != known);
        if !more_may_come
            || !matches!(
                tokio::time::timeout(session.remaining_settle_time(), changed).await,
                Ok(Ok(_))
            )
        {
            let text = format!("there is no prompt `{name}`");
            return Err(ErrorData::invalid_params(text, None));
        }
    }
}

fn resource(resource: &Resource) -> Value {
    let mut fields = extra_members(resource.meta.as_ref());
    fields.insert("uri".to_owned(), resource.uri.as_str().into());
    fields.insert("name".to_owned(), resource.name.as_str().into());
    if let Some(text) = &resource.description {
        fields.insert("description".to_owned(), text.as_str().into());
    }
    if let Some(kind) = &resource.media_type {
        fields.insert("mimeType".to_owned(), kind.as_str().into());
    }
    Value::Object(fields)
}

fn prompt_entry(prompt: &Prompt, name: &str) -> Value {
    let mut fields = extra_members(prompt.meta.as_ref());
    fields.insert("name".to_owned(), name.into());
    if let Some(text) = &prompt.description {
        fields.insert("description".to_owned(), text.as_str().into());
    }
    if !prompt.arguments.is_empty() {
        fields.insert("arguments".to_owned(), prompt.arguments.clone().into());
    }
    Value::Object(fields)
}

/// The further members of an entry: what a peer sent where it speaks MCP, else what the plugin
/// says beside.
fn extra_members(meta: Option<&Value>) -> Map<String, Value> {
    let Some(Value::Object(meta)) = meta else {
        return Map::new();
    };
    let mut members = match meta.get("mcp") {
        Some(Value::Object(raw)) => raw.clone(),
        _ => meta.clone(),
    };
    passthrough::clean_entry(&mut members);
    members
}

/// One page of a list, and the cursor of the next. An entry that the SDK cannot hold is left out.
///
/// # Errors
/// When the cursor is none of this server's.
pub(super) fn page<T: DeserializeOwned>(
    entries: Vec<Value>,
    cursor: Option<&str>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let begin = match cursor {
        None => 0,
        Some(cursor) => {
            let number = cursor.strip_prefix("from-").and_then(|n| n.parse().ok());
            number
                .filter(|begin| (1..=entries.len()).contains(begin))
                .ok_or_else(|| ErrorData::invalid_params("the cursor is not known here", None))?
        }
    };
    let end = begin.saturating_add(PAGE_SIZE);
    let next = (entries.len() > end).then(|| format!("from-{end}"));
    let page = entries.into_iter().skip(begin).take(PAGE_SIZE);
    let typed = page.filter_map(|entry| {
        serde_json::from_value(entry)
            .inspect_err(|error| tracing::warn!("an entry of a list is left out: {error}"))
            .ok()
    });
    Ok((typed.collect(), next))
}

/// The lists that sources are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceListKind {
    Resources,
    Prompts,
}

/// Takes the output of requests that nobody follows.
pub(super) fn discard_output() -> LiveOutput {
    Arc::new(|_, _| {})
}

/// A request to sources on behalf of no call, with the answer word for word.
pub(super) fn silent_call<'a>(
    snapshot: &'a ToolSnapshot,
    cancel: &'a CancellationToken,
    live: &'a LiveOutput,
) -> ToolCallOptions<'a> {
    ToolCallOptions {
        snapshot,
        cancel,
        live,
        request_context: None,
        verbatim: true,
    }
}

/// Asks the sources for their lists.
pub(super) async fn fetch_lists(
    calls: &ToolSession,
    cancel: &CancellationToken,
    of: SourceListKind,
) -> Vec<SourceLists> {
    let snapshot = calls.snapshot();
    let live = discard_output();
    let with = silent_call(&snapshot, cancel, &live);
    let reader = calls.reader(None, &with);
    match of {
        SourceListKind::Resources => reader.resources().await,
        SourceListKind::Prompts => reader.prompts().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lists(source: &str, prompts: &[&str]) -> SourceLists {
        let prompt = |name: &&str| Prompt {
            name: (*name).to_owned(),
            description: None,
            arguments: Vec::new(),
            meta: Some(json!({ "title": "T" })),
        };
        SourceLists {
            source: source.to_owned(),
            prompts: prompts.iter().map(prompt).collect(),
            ..SourceLists::default()
        }
    }

    #[test]
    fn a_prompt_that_two_have_gets_its_sources_name() {
        let served = prompts(&[lists("a", &["x", "both"]), lists("b", &["both"])]);
        let names: Vec<&str> = served.keys().map(String::as_str).collect();
        assert_eq!(names, ["a_both", "b_both", "x"]);
        assert_eq!(
            (&*served["b_both"].source, &*served["b_both"].source_name),
            ("b", "both")
        );
        assert_eq!(served["x"].prompt, json!({ "title": "T", "name": "x" }));
    }

    #[test]
    fn a_template_keeps_nothing_that_is_the_hosts() {
        let lists = SourceLists {
            templates: vec![json!({ "name": "t", "_meta": { "dev.conjure/whole": {}, "k": 1 } })],
            ..SourceLists::default()
        };
        let served = templates(&[lists]);
        assert_eq!(
            served.first(),
            Some(&json!({ "name": "t", "_meta": { "k": 1 } }))
        );
    }

    #[test]
    fn pages_follow_each_other_and_an_unknown_cursor_is_refused() {
        let entries: Vec<Value> = (0..2500).map(Value::from).collect();
        let (first, next) = page::<u64>(entries.clone(), None).unwrap();
        assert_eq!((first.len(), next.as_deref()), (1000, Some("from-1000")));
        let (last, next) = page::<u64>(entries.clone(), Some("from-2000")).unwrap();
        assert_eq!((last.first(), last.len(), next), (Some(&2000), 500, None));
        for cursor in ["", "from-", "from-9999", "7"] {
            assert!(page::<u64>(entries.clone(), Some(cursor)).is_err());
        }
    }

    #[test]
    fn further_members_of_a_peers_entry_are_kept() {
        let entry = Resource {
            uri: "a://b".to_owned(),
            name: "b".to_owned(),
            description: None,
            media_type: None,
            meta: Some(json!({ "server": "s", "mcp": {
                "uri": "a://b", "icons": [], "_meta": { "k": 1, "dev.conjure/whole": {} },
            } })),
        };
        assert_eq!(
            resource(&entry),
            json!({ "uri": "a://b", "icons": [], "_meta": { "k": 1 }, "name": "b" })
        );
    }
}
