//! The source of a session that a resource belongs to. A URI is a name of its source's alone: what
//! another source has under the same one is another resource.
//!
//! A URI belongs to the source whose result linked to it, if that lists it or has a template for it; else
//! to the one that lists it, else to one with the template that says most about it.

use conjure_core::uri_template::Rank;

use super::readers::ReadError;

/// What a source says of a URI before it is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResourceClaim {
    /// Number of the source.
    pub(super) at: usize,
    /// Name of the source.
    pub(super) name: String,
    /// Whether the source is a backend, and not a skill.
    pub(super) is_backend: bool,
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
    /// The source that has only linked to it.
    Linked(usize),
    /// Sources of which one may have it; any of them where none says more.
    OneOf(Vec<usize>),
}

impl ResourceClaim {
    fn is_of(&self, linked: Option<&str>) -> bool {
        linked == Some(self.name.as_str())
    }

    /// The source as people are told of it.
    fn shown(&self) -> String {
        match self.is_backend {
            true => format!("backend `{}`", self.name),
            false => format!("skill `{}`", self.name),
        }
    }
}

/// The owner of a resource. `linked` is the source whose result linked to it: that tells sources apart
/// that list it, and is enough where none does.
///
/// # Errors
/// When several sources list it.
pub(super) fn owner(
    claims: &[ResourceClaim],
    uri: &str,
    linked: Option<&str>,
) -> Result<ResourceOwner, ReadError> {
    let linked = claims.iter().find(|claim| claim.is_of(linked));
    if let Some(claim) = linked.filter(|claim| claim.is_listed || claim.rank.is_some()) {
        return Ok(ResourceOwner::Known(claim.at));
    }
    let listing: Vec<&ResourceClaim> = claims.iter().filter(|claim| claim.is_listed).collect();
    match (listing.as_slice(), linked) {
        ([], Some(claim)) => return Ok(ResourceOwner::Linked(claim.at)),
        ([], None) => {}
        ([claim], _) => return Ok(ResourceOwner::Known(claim.at)),
        (several, _) => return Err(ambiguous(uri, "is listed by", several)),
    }
    let best = claims.iter().filter_map(|claim| claim.rank).max();
    let best = claims.iter().filter(|claim| claim.rank == best);
    Ok(ResourceOwner::OneOf(best.map(|claim| claim.at).collect()))
}

/// The error of a URI that is several sources'. `how` says why: `is listed by`.
pub(super) fn ambiguous(uri: &str, how: &str, claims: &[&ResourceClaim]) -> ReadError {
    let shown: Vec<String> = claims.iter().map(|claim| claim.shown()).collect();
    ReadError::Invalid(format!(
        "`{uri}` {how} {} sources of this session, so it is not known which of them is meant: {}. Call a \
         tool of one of them that links to it and read it after that, read it in a session with one of \
         them, or leave the resources of the others out (`resources = false` of an MCP server)",
        claims.len(),
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use conjure_core::uri_template::fits;

    use super::*;

    fn claim(at: usize, name: &str, is_listed: bool, template: Option<&str>) -> ResourceClaim {
        ResourceClaim {
            at,
            name: name.to_owned(),
            is_backend: name != "skill",
            is_listed,
            rank: template.and_then(|template| fits(template, "x://1")),
        }
    }

    fn owner_of(claims: &[ResourceClaim], linked: Option<&str>) -> Result<ResourceOwner, String> {
        owner(claims, "x://1", linked).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resource_is_of_who_linked_to_it_then_of_the_one_that_lists_it_then_of_the_template() {
        use ResourceOwner::{Known, Linked, OneOf};
        let any = claim(0, "any", false, Some("{+uri}"));
        let lists = claim(1, "lists", true, None);
        let near = claim(2, "near", false, Some("x://{id}"));
        let other = claim(3, "other", false, Some("x://{name}"));
        let silent = claim(4, "silent", false, None);
        let all = [any, lists, near.clone(), other.clone(), silent.clone()];
        assert_eq!(owner_of(&all, None), Ok(Known(1)));
        assert_eq!(owner_of(&all, Some("any")), Ok(Known(0)));
        for linked in ["silent", "gone"] {
            assert_eq!(owner_of(&all, Some(linked)), Ok(Known(1)), "{linked}");
        }
        let unlisted = [all[0].clone(), near, other, silent.clone()];
        assert_eq!(owner_of(&unlisted, None), Ok(OneOf(vec![2, 3])));
        assert_eq!(owner_of(&unlisted, Some("silent")), Ok(Linked(4)));
        assert_eq!(owner_of(&[silent], None), Ok(OneOf(vec![4])));
    }

    #[test]
    fn what_several_sources_list_is_of_none_without_a_link() {
        let listing = |at, name: &str| claim(at, name, true, None);
        let several = [listing(0, "a"), listing(1, "skill"), listing(2, "b")];
        let told = owner_of(&several, None).unwrap_err();
        assert!(
            told.contains("3 sources")
                && told.contains(": backend `a`, skill `skill`, backend `b`."),
            "{told}"
        );
        assert_eq!(owner_of(&several, Some("b")), Ok(ResourceOwner::Known(2)));
    }
}
