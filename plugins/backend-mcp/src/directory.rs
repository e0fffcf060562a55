//! The server of a session that a resource or a prompt belongs to.
//!
//! A URI belongs to the server that lists it, else to the one whose result named it, else to the
//! one with the template that says most about it. A prompt that several servers have gets its
//! server's name before its own.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use conjure_core::uri_template::{self, Rank};
use conjure_skill_sdk::protocol::Prompt;
use conjure_skill_sdk::{Error, Result};
use serde_json::Value;

use crate::listing::Listing;

/// The lists of a session's servers, in the order of the configuration; none of a server that has
/// listed nothing yet.
pub(crate) type Lists<'a> = &'a [(&'a str, Option<Arc<Listing>>)];

/// The server that a URI belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UriOwner<'a> {
    /// To the server that lists it, or has a template for it.
    Known(&'a str),
    /// To the only server that may have it.
    Only(&'a str),
    /// To none of those that have listed something.
    Unknown,
}

/// The server that a resource is of. `linked` is the one whose result named it.
///
/// # Errors
/// When the templates of several servers fit alike.
pub(crate) fn resource<'a>(
    lists: Lists<'a>,
    uri: &str,
    linked: Option<&str>,
) -> Result<UriOwner<'a>> {
    let lists_it = |listing: &Listing| listing.resources.iter().any(|known| known.uri == uri);
    let mut found = lists.iter();
    let found = found.find(|(_, listing)| listing.as_deref().is_some_and(lists_it));
    let found = found.or_else(|| lists.iter().find(|(server, _)| Some(*server) == linked));
    if let Some((server, _)) = found {
        return Ok(UriOwner::Known(server));
    }
    match by_template(lists, uri).as_slice() {
        [] => Ok(sole_owner(lists)),
        [(server, _)] => Ok(UriOwner::Known(server)),
        several => {
            let named = several
                .iter()
                .map(|(server, template)| format!("{server} (`{template}`)"));
            let named = named.collect::<Vec<_>>().join(", ");
            Err(Error::invalid(format!(
                "`{uri}` fits URI templates of {} MCP servers alike, so it is not known which of \
                 them has it: {named}. Read it in a session with one of them, or set `resources = \
                 false` for the others",
                several.len()
            )))
        }
    }
}

/// The servers whose templates say most about a URI, each with its template.
fn by_template<'a>(lists: Lists<'a>, uri: &str) -> Vec<(&'a str, &'a str)> {
    let mut best: Option<Rank> = None;
    let mut found: Vec<(&str, &str)> = Vec::new();
    for (server, listing) in lists {
        let templates = listing.iter().flat_map(|listing| &listing.templates);
        let texts = templates.filter_map(|template| template.get("uriTemplate")?.as_str());
        let fitting = texts.filter_map(|text| Some((uri_template::fits(text, uri)?, text)));
        let Some((rank, text)) = fitting.max_by_key(|(rank, _)| *rank) else {
            continue;
        };
        if best.is_none_or(|best| rank > best) {
            found.clear();
        }
        if best.is_none_or(|best| rank >= best) {
            best = Some(rank);
            found.push((server, text));
        }
    }
    found
}

/// A server may have what it does not list. Where it is the only one with resources it is asked.
fn sole_owner<'a>(lists: Lists<'a>) -> UriOwner<'a> {
    let has_any = |listing: &Option<Arc<Listing>>| {
        listing
            .as_deref()
            .is_none_or(|listing| listing.serves_resources)
    };
    let mut able = lists.iter().filter(|(_, listing)| has_any(listing));
    match (able.next(), able.next()) {
        (Some((server, _)), None) => UriOwner::Only(server),
        _ => UriOwner::Unknown,
    }
}

/// The first server with a URI template of exactly this text. What it completes is as good as what
/// another one with the same would.
pub(crate) fn with_template<'a>(lists: Lists<'a>, template: &str) -> Option<&'a str> {
    let is_it = |known: &Value| known.get("uriTemplate").and_then(Value::as_str) == Some(template);
    let has_it = |listing: &Listing| listing.templates.iter().any(is_it);
    let mut lists = lists.iter();
    let having = lists.find(|(_, listing)| listing.as_deref().is_some_and(has_it));
    having.map(|(server, _)| *server)
}

/// A prompt under the name by which the host knows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedPrompt {
    pub(crate) server: String,
    /// Name of the prompt at its server.
    pub(crate) own: String,
    /// The prompt as the host gets it.
    pub(crate) prompt: Prompt,
}

/// All prompts: one that several servers have comes with its server's name. A name is never given
/// twice; what would get a second one is counted.
pub(crate) fn prompts(lists: Lists<'_>) -> Vec<NamedPrompt> {
    let all = || {
        lists.iter().flat_map(|(server, listing)| {
            let prompts = listing.iter().flat_map(|listing| &listing.prompts);
            prompts.map(move |prompt| (*server, prompt))
        })
    };
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (_, prompt) in all() {
        *counts.entry(prompt.name.as_str()).or_default() += 1;
    }
    let alone = |name: &str| counts.get(name) == Some(&1);
    let own = all().filter(|(_, prompt)| alone(&prompt.name));
    let mut taken: HashSet<String> = own.map(|(_, prompt)| prompt.name.clone()).collect();
    all()
        .map(|(server, prompt)| {
            let mut named = prompt.clone();
            if !alone(&prompt.name) {
                let wanted = format!("{server}_{}", prompt.name);
                let mut number = 1;
                named.name.clone_from(&wanted);
                while !taken.insert(named.name.clone()) {
                    number += 1;
                    named.name = format!("{wanted}_{number}");
                }
            }
            NamedPrompt {
                server: server.to_owned(),
                own: prompt.name.clone(),
                prompt: named,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::Resource;
    use serde_json::json;

    use super::*;

    fn listing(resources: &[&str], templates: &[&str], prompts: &[&str]) -> Option<Arc<Listing>> {
        let template = |text: &&str| json!({ "uriTemplate": text, "name": "t" });
        let prompt = |name: &&str| Prompt {
            name: (*name).to_owned(),
            description: None,
            arguments: Vec::new(),
            meta: None,
        };
        Some(Arc::new(Listing {
            serves_resources: !(resources.is_empty() && templates.is_empty()),
            resources: resources
                .iter()
                .map(|uri| Resource::new(*uri, "r"))
                .collect(),
            templates: templates.iter().map(template).collect(),
            prompts: prompts.iter().map(prompt).collect(),
            ..Listing::default()
        }))
    }

    #[test]
    fn a_resource_is_of_whoever_lists_it_then_of_who_named_it_then_of_the_template() {
        let lists = [
            ("any", listing(&[], &["{+uri}"], &[])),
            ("a", listing(&["x://listed"], &["x://{id}"], &[])),
            ("b", listing(&[], &["x://b/{id}", "y://{id}"], &[])),
            ("late", None),
        ];
        let owner = |uri, linked| resource(&lists, uri, linked).unwrap();
        assert_eq!(owner("x://listed", Some("b")), UriOwner::Known("a"));
        assert_eq!(owner("x://b/1", Some("a")), UriOwner::Known("a"));
        assert_eq!(owner("x://b/1", None), UriOwner::Known("b"));
        assert_eq!(owner("x://7", Some("gone")), UriOwner::Known("a"));
        assert_eq!(owner("z://7", None), UriOwner::Known("any"));
        assert_eq!(
            resource(&lists[1..], "z://7", None).unwrap(),
            UriOwner::Unknown
        );
        assert_eq!(
            resource(&lists[3..], "z://7", None).unwrap(),
            UriOwner::Only("late")
        );
        let none = ("tools", listing(&[], &[], &[]));
        let two = [none, lists[1].clone()];
        assert_eq!(resource(&two, "z://7", None).unwrap(), UriOwner::Only("a"));
    }

    #[test]
    fn templates_that_fit_alike_are_named() {
        let lists = [
            ("a", listing(&[], &["x://{id}"], &[])),
            ("b", listing(&[], &["x://{name}", "x://{+all}"], &[])),
        ];
        let told = resource(&lists, "x://1", None).unwrap_err();
        let told = told.message();
        assert!(told.contains("a (`x://{id}`), b (`x://{name}`)"), "{told}");
    }

    #[test]
    fn no_two_prompts_have_one_name() {
        let lists = [
            ("a", listing(&[], &[], &["plan", "only"])),
            ("b", listing(&[], &[], &["plan", "a_plan"])),
        ];
        let named = prompts(&lists);
        let names: Vec<[&str; 3]> = named
            .iter()
            .map(|one| [&*one.prompt.name, &*one.server, &*one.own])
            .collect();
        assert_eq!(
            names,
            [
                ["a_plan_2", "a", "plan"],
                ["only", "a", "only"],
                ["b_plan", "b", "plan"],
                ["a_plan", "b", "a_plan"],
            ]
        );
    }
}
