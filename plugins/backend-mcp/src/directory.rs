//! The server of a session that a resource or a prompt belongs to.
//!
//! A URI belongs to the server whose result named it, else to the one that lists it, else to the one
//! with the template that says most about it. A prompt that several servers have gets its server's
//! name before its own.

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

/// The server that a URI belongs to, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UriOwner<'a> {
    pub(crate) server: &'a str,
    pub(crate) claim: Claim,
}

/// Why a URI is taken for a server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The server lists the URI, or has a template for it.
    Listed,
    /// A result of the server named the URI, which it neither lists nor has a template for.
    Linked,
    /// No other server may have it.
    SoleCandidate,
}

/// The server that a resource is of, if any may have it. `linked` is the one whose result named it: that
/// tells servers apart that list it, and is enough where none does.
///
/// # Errors
/// When several servers list it, or the templates of several servers fit alike.
pub(crate) fn resource<'a>(
    lists: Lists<'a>,
    uri: &str,
    linked: Option<&str>,
) -> Result<Option<UriOwner<'a>>> {
    let owner = |server, claim| Ok(Some(UriOwner { server, claim }));
    let linked = lists.iter().find(|(name, _)| Some(*name) == linked);
    if let Some((server, Some(listing))) = linked
        && (lists_uri(listing, uri) || template_of(listing, uri).is_some())
    {
        return owner(*server, Claim::Listed);
    }
    let having = lists.iter().filter(|(_, listing)| {
        let listing = listing.as_deref();
        listing.is_some_and(|listing| lists_uri(listing, uri))
    });
    let having: Vec<&str> = having.map(|(server, _)| *server).collect();
    match (having.as_slice(), linked) {
        // A link alone is no claim to what another server lists.
        ([], Some((server, _))) => return owner(*server, Claim::Linked),
        ([], None) => {}
        ([server], _) => return owner(*server, Claim::Listed),
        (several, _) => {
            return Err(Error::invalid(format!(
                "`{uri}` is listed by {} MCP servers, so it is not known which of them is meant: \
                 {}. Call a tool of one of them that links to it and read it after that, read it \
                 in a session with one of them, or set `resources = false` for the others",
                several.len(),
                several.join(", ")
            )));
        }
    }
    match by_template(lists, uri).as_slice() {
        [] => Ok(sole_owner(lists)),
        [(server, _)] => owner(*server, Claim::Listed),
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

fn lists_uri(listing: &Listing, uri: &str) -> bool {
    listing.resources.iter().any(|known| known.uri == uri)
}

/// The template of a server that says most about a URI.
fn template_of<'a>(listing: &'a Listing, uri: &str) -> Option<(Rank, &'a str)> {
    let templates = listing.templates.iter();
    let texts = templates.filter_map(|template| template.get("uriTemplate")?.as_str());
    let fitting = texts.filter_map(|text| Some((uri_template::fits(text, uri)?, text)));
    fitting.max_by_key(|(rank, _)| *rank)
}

/// The servers whose templates say most about a URI, each with its template.
fn by_template<'a>(lists: Lists<'a>, uri: &str) -> Vec<(&'a str, &'a str)> {
    let mut best: Option<Rank> = None;
    let mut found: Vec<(&str, &str)> = Vec::new();
    for (server, listing) in lists {
        let listing = listing.as_deref();
        let Some((rank, text)) = listing.and_then(|listing| template_of(listing, uri)) else {
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
fn sole_owner<'a>(lists: Lists<'a>) -> Option<UriOwner<'a>> {
    let has_any = |listing: &Option<Arc<Listing>>| {
        listing
            .as_deref()
            .is_none_or(|listing| listing.serves_resources)
    };
    let mut able = lists.iter().filter(|(_, listing)| has_any(listing));
    match (able.next(), able.next()) {
        (Some((server, _)), None) => Some(UriOwner {
            server,
            claim: Claim::SoleCandidate,
        }),
        _ => None,
    }
}

/// Resources by the server that has them whose URIs a server before it lists too: a program that is
/// shown one of each URI sees none of them. Each with the first server that lists it.
pub(crate) fn hidden_resources<'a>(lists: Lists<'a>) -> HashMap<&'a str, Vec<(&'a str, &'a str)>> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let mut hidden: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
    for (server, listing) in lists {
        for resource in listing.iter().flat_map(|listing| &listing.resources) {
            let uri = resource.uri.as_str();
            let by = *first.entry(uri).or_insert(server);
            if by != *server {
                hidden.entry(server).or_default().push((uri, by));
            }
        }
    }
    hidden
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
    pub(crate) original_name: String,
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
                original_name: prompt.name.clone(),
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
    fn a_resource_is_of_who_named_it_then_of_whoever_lists_it_then_of_the_template() {
        let lists = [
            ("any", listing(&[], &["{+uri}"], &[])),
            ("a", listing(&["x://listed"], &["x://{id}"], &[])),
            ("b", listing(&[], &["x://b/{id}", "y://{id}"], &[])),
            ("late", None),
        ];
        let owner = |lists, uri, linked| {
            let owner = resource(lists, uri, linked).unwrap();
            owner.map(|owner| (owner.server, owner.claim))
        };
        let all = |uri, linked| owner(&lists, uri, linked);
        assert_eq!(all("x://listed", None), Some(("a", Claim::Listed)));
        assert_eq!(all("x://listed", Some("any")), Some(("any", Claim::Listed)));
        for linked in ["b", "late"] {
            assert_eq!(all("x://listed", Some(linked)), Some(("a", Claim::Listed)));
        }
        assert_eq!(all("x://b/1", Some("a")), Some(("a", Claim::Linked)));
        assert_eq!(all("x://b/1", None), Some(("b", Claim::Listed)));
        assert_eq!(all("x://7", Some("gone")), Some(("a", Claim::Listed)));
        assert_eq!(all("z://7", None), Some(("any", Claim::Listed)));
        assert_eq!(owner(&lists[1..], "z://7", None), None);
        assert_eq!(
            owner(&lists[3..], "z://7", None),
            Some(("late", Claim::SoleCandidate))
        );
        let none = ("tools", listing(&[], &[], &[]));
        let two = [none, lists[1].clone()];
        assert_eq!(
            owner(&two, "z://7", None),
            Some(("a", Claim::SoleCandidate))
        );
    }

    #[test]
    fn what_several_servers_list_is_hidden_by_the_first_and_of_none_without_a_link() {
        let lists = [
            ("a", listing(&["x://1", "x://2"], &[], &[])),
            ("late", None),
            ("b", listing(&["x://2", "x://3"], &["x://{id}"], &[])),
            ("c", listing(&["x://3", "x://2"], &[], &[])),
        ];
        let told = resource(&lists, "x://2", None).unwrap_err();
        let told = told.message();
        assert!(told.contains("3 MCP servers"), "{told}");
        assert!(told.contains(": a, b, c."), "{told}");
        let linked = resource(&lists, "x://2", Some("c")).unwrap();
        assert_eq!(linked.map(|owner| owner.server), Some("c"));
        let expected = [
            ("b", vec![("x://2", "a")]),
            ("c", vec![("x://3", "b"), ("x://2", "a")]),
        ];
        assert_eq!(hidden_resources(&lists), HashMap::from(expected));
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
            .map(|one| [&*one.prompt.name, &*one.server, &*one.original_name])
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
