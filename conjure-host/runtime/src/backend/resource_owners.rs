//! The source of a session that a resource belongs to. A URI is a name of its source's alone: what
//! another source has under the same one is another resource.
//!
//! A URI belongs to a source that lists it; where none does, to one with a template for it; where none
//! has one, to one whose result linked to it. Of several such sources it is the only one whose result
//! linked to it, else the one with the template that says most about it.

use conjure_core::uri_template::Rank;

use super::readers::ReadError;

/// What helps where no source linked to a URI.
const BY_LINK: &str = "Call a tool of one of them that links to it and read it after that, read it";

/// A source of resources by its name. A backend and a skill may have the same one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceName {
    /// A backend's.
    Backend(String),
    /// A native skill's.
    Skill(String),
}

/// What a source says of a URI before it is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResourceClaim {
    /// Number of the source.
    pub(super) at: usize,
    /// Name of the source.
    pub(super) source: SourceName,
    /// Whether the source lists the URI.
    pub(super) is_listed: bool,
    /// How much the source's best template for the URI says about it.
    pub(super) rank: Option<Rank>,
}

/// Sources that are asked first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResourceOwner {
    /// The source that lists it or has a template for it.
    Known(usize),
    /// The source that has only linked to it, as no other one says anything of it.
    Linked(usize),
    /// Sources of which one may have it; any of them where none says more.
    OneOf(Vec<usize>),
}

/// Why a URI is several sources'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// Sources list it, and none of them linked to it.
    Listed,
    /// Results of sources linked to it, and no one of them has more of a claim.
    Linked,
    /// Sources answered the read.
    Given,
}

impl SourceName {
    /// The source as people are told of it.
    fn shown(&self) -> String {
        match self {
            Self::Backend(name) => format!("backend `{name}`"),
            Self::Skill(name) => format!("skill `{name}`"),
        }
    }
}

/// The owner of a resource. `links` are the sources whose results linked to it: a link tells sources
/// apart that have the same claim, and is one by itself only where no source has any.
///
/// # Errors
/// When several sources have the same claim, and not just one of them linked to it.
pub(super) fn owner(
    claims: &[ResourceClaim],
    uri: &str,
    links: &[SourceName],
) -> Result<ResourceOwner, ReadError> {
    let with = |has_claim: fn(&ResourceClaim) -> bool| -> Vec<&ResourceClaim> {
        claims.iter().filter(|claim| has_claim(claim)).collect()
    };
    let listing = with(|claim| claim.is_listed);
    let fitting = with(|claim| claim.rank.is_some());
    let has_claims = !listing.is_empty() || !fitting.is_empty();
    let candidates = match (listing.as_slice(), fitting.as_slice()) {
        ([], []) => with(|_| true),
        ([], fitting) => fitting.to_vec(),
        (listing, _) => listing.to_vec(),
    };
    let linked = candidates.iter().copied();
    let linked = linked.filter(|claim| links.contains(&claim.source));
    let linked: Vec<&ResourceClaim> = linked.collect();
    match (linked.as_slice(), listing.as_slice()) {
        ([claim], _) if has_claims => return Ok(ResourceOwner::Known(claim.at)),
        ([claim], _) => return Ok(ResourceOwner::Linked(claim.at)),
        ([], []) => {}
        ([], [claim]) => return Ok(ResourceOwner::Known(claim.at)),
        ([], several) => return Err(ambiguous(uri, Ambiguity::Listed, several)),
        (several, _) => return Err(ambiguous(uri, Ambiguity::Linked, several)),
    }
    let best = claims.iter().filter_map(|claim| claim.rank).max();
    let best = claims.iter().filter(|claim| claim.rank == best);
    Ok(ResourceOwner::OneOf(best.map(|claim| claim.at).collect()))
}

/// The error of a URI that is several sources'.
pub(super) fn ambiguous(uri: &str, why: Ambiguity, claims: &[&ResourceClaim]) -> ReadError {
    let shown: Vec<String> = claims.iter().map(|claim| claim.source.shown()).collect();
    let (how, advice) = match why {
        Ambiguity::Listed => ("is listed by", BY_LINK),
        Ambiguity::Given => ("is given by", BY_LINK),
        Ambiguity::Linked => ("is linked to by results of", "Read it"),
    };
    ReadError::Invalid(format!(
        "`{uri}` {how} {} sources of this session, so it is not known which of them is meant: {}. \
         {advice} in a session with one of them, or leave the resources of the others out (`resources = \
         false` of an MCP server)",
        claims.len(),
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use conjure_core::uri_template::fits;

    use super::*;

    fn source(name: &str) -> SourceName {
        match name.strip_prefix("skill ") {
            Some(name) => SourceName::Skill(name.to_owned()),
            None => SourceName::Backend(name.to_owned()),
        }
    }

    fn claim(at: usize, name: &str, is_listed: bool, template: Option<&str>) -> ResourceClaim {
        ResourceClaim {
            at,
            source: source(name),
            is_listed,
            rank: template.and_then(|template| fits(template, "x://1")),
        }
    }

    fn owner_of(claims: &[ResourceClaim], links: &[&str]) -> Result<ResourceOwner, String> {
        let links: Vec<SourceName> = links.iter().map(|name| source(name)).collect();
        owner(claims, "x://1", &links).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resource_is_of_the_one_that_lists_it_then_of_the_template_then_of_the_link() {
        use ResourceOwner::{Known, Linked, OneOf};
        let any = claim(0, "any", false, Some("{+uri}"));
        let lists = claim(1, "lists", true, None);
        let near = claim(2, "near", false, Some("x://{id}"));
        let other = claim(3, "other", false, Some("x://{name}"));
        let silent = claim(4, "silent", false, None);
        let all = [any, lists, near.clone(), other.clone(), silent.clone()];
        // A link of one that does not list it takes it from nobody who does.
        for links in [
            &[][..],
            &["any"],
            &["silent"],
            &["gone"],
            &["any", "silent"],
        ] {
            assert_eq!(owner_of(&all, links), Ok(Known(1)), "{links:?}");
        }
        let unlisted = [all[0].clone(), near, other, silent.clone()];
        for links in [&[][..], &["silent"]] {
            assert_eq!(owner_of(&unlisted, links), Ok(OneOf(vec![2, 3])));
        }
        for links in [&["any"][..], &["any", "silent"]] {
            assert_eq!(owner_of(&unlisted, links), Ok(Known(0)));
        }
        let several = owner_of(&unlisted, &["any", "near"]).unwrap_err();
        assert!(several.contains("results of 2 sources"), "{several}");
        let mute = claim(5, "mute", false, None);
        let saying_nothing = [silent, mute];
        assert_eq!(owner_of(&saying_nothing, &[]), Ok(OneOf(vec![4, 5])));
        assert_eq!(owner_of(&saying_nothing, &["mute"]), Ok(Linked(5)));
        let several = owner_of(&saying_nothing, &["mute", "silent"]).unwrap_err();
        assert!(
            several.contains(": backend `silent`, backend `mute`. Read it in a session"),
            "{several}"
        );
    }

    #[test]
    fn what_several_sources_list_is_of_the_only_one_that_linked_to_it() {
        let listing = |at, name: &str| claim(at, name, true, None);
        let several = [listing(0, "a"), listing(1, "skill a"), listing(2, "b")];
        let any = claim(3, "any", false, Some("{+uri}"));
        let all = [several.as_slice(), &[any]].concat();
        for links in [&[][..], &["any"], &["skill b"]] {
            let refused = owner_of(&all, links).unwrap_err();
            assert!(
                refused.contains("listed by 3 sources")
                    && refused.contains(": backend `a`, skill `a`, backend `b`. Call a tool"),
                "{refused}"
            );
        }
        for (links, at) in [
            (["b", "any"], 2),
            (["skill a", "gone"], 1),
            (["a", "any"], 0),
        ] {
            assert_eq!(owner_of(&all, &links), Ok(ResourceOwner::Known(at)));
        }
        let refused = owner_of(&all, &["b", "a"]).unwrap_err();
        assert!(
            refused.contains("results of 2 sources")
                && refused.contains(": backend `a`, backend `b`. Read it in a session"),
            "{refused}"
        );
    }
}
