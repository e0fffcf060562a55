//! What became of a crate's public items: what breaks crates that compile, and what is new.
//!
//! The rules are those of cargo for versions that fit each other, as far as a list of items shows them.

use std::collections::{BTreeMap, BTreeSet};

use super::surface::PublicItem;

/// The differences of two lists, one line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Crates that compile with the older list may not with the newer one.
    pub(super) breaking: Vec<String>,
    /// Crates that compile with the older list do with the newer one.
    pub(super) additions: Vec<String>,
}

/// What an enum or a struct that may grow says.
const GROWS: &str = "#[non_exhaustive] ";

/// The differences from one list to a newer one.
pub(super) fn between(old: &BTreeSet<PublicItem>, new: &BTreeSet<PublicItem>) -> Changes {
    let mut changes = Changes::default();
    let gone = by_path(old.difference(new));
    let mut added = by_path(new.difference(old));
    for (path, gone) in gone {
        let came = added.remove(path).unwrap_or_default();
        match (gone.as_slice(), came.as_slice()) {
            ([was], [is]) if !is_implementation(was) && !is_implementation(is) => {
                let line = format!("{path} was `{was}` and is `{is}`");
                match is_wider(was, is) {
                    true => changes.additions.push(line),
                    false => changes.breaking.push(line),
                }
            }
            _ => {
                let lines = gone.iter().map(|was| format!("{path} is gone: `{was}`"));
                changes.breaking.extend(lines);
                added.insert(path, came);
            }
        }
    }
    for (path, came) in added {
        for is in came {
            let line = format!("{path} is new: `{is}`");
            match breaks_older_code(old, path, is) {
                true => changes.breaking.push(line),
                false => changes.additions.push(line),
            }
        }
    }
    changes
}

fn by_path<'a>(items: impl Iterator<Item = &'a PublicItem>) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut paths: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for item in items {
        paths.entry(&item.path).or_default().push(&item.description);
    }
    paths
}

/// Whether it is one of many of a type, and not what stands under a name.
fn is_implementation(what: &str) -> bool {
    what.starts_with("impl")
}

/// Whether everything that was written for the one fits the other.
fn is_wider(was: &str, is: &str) -> bool {
    // Who implements the trait need not write it any more.
    let required = was.strip_prefix("required ");
    let is_provided = required.is_some() && required == is.strip_prefix("provided ");
    // It is there with fewer features.
    let has_fewer_gates = was
        .strip_prefix(is)
        .is_some_and(|rest| rest.starts_with(" #[cfg("));
    let is_complete = was.contains(GROWS) && was.replacen(GROWS, "", 1) == is;
    is_provided || has_fewer_gates || is_complete
}

/// Whether a new item breaks older code that implements the trait, matches on the enum or writes the
/// struct down that it belongs to.
fn breaks_older_code(old: &BTreeSet<PublicItem>, path: &str, what: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once("::") else {
        return false;
    };
    let mut parents = old.iter().filter(|item| item.path == parent);
    parents.any(|item| {
        let whole = item.description.split(" #[cfg(").next().unwrap_or_default();
        let is_complete = !whole.contains(GROWS);
        match unmarked(what).split([' ', ':', '(']).next() {
            Some("required") => whole.contains("trait"),
            Some("variant") => is_complete,
            Some("field") => is_complete && whole.ends_with(" {}"),
            _ => false,
        }
    })
}

/// What an item is, without the attributes in front.
fn unmarked(mut what: &str) -> &str {
    while let Some((_, behind)) = what
        .strip_prefix("#[")
        .and_then(|mark| mark.split_once("] "))
    {
        what = behind;
    }
    what
}

/// Whether a version may break what the other one promised, as cargo sees it: another number where the
/// older one has its first that is not zero, or before.
pub(super) fn may_break(old: &str, new: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let version = version.split(['-', '+']).next().unwrap_or_default();
        let numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        numbers.take(3).collect()
    };
    let (old, new) = (numbers(old), numbers(new));
    let first = old.iter().position(|number| *number > 0).unwrap_or(2);
    old.get(..=first) < new.get(..=first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(lines: &[&str]) -> BTreeSet<PublicItem> {
        lines
            .iter()
            .filter_map(|line| PublicItem::read(line))
            .collect()
    }

    fn found(old: &[&str], new: &[&str]) -> (usize, usize) {
        let changes = between(&items(old), &items(new));
        (changes.breaking.len(), changes.additions.len())
    }

    #[test]
    fn what_is_gone_or_another_one_is_named_and_breaks() {
        let old = [
            "a::f fn(&str) -> u8",
            "a::g fn()",
            "a::T struct",
            "a::T impl Clone for T",
        ];
        let changes = between(
            &items(&old),
            &items(&["a::f fn(String) -> u8", "a::T struct"]),
        );
        assert_eq!(
            changes.breaking,
            [
                "a::T is gone: `impl Clone for T`",
                "a::f was `fn(&str) -> u8` and is `fn(String) -> u8`",
                "a::g is gone: `fn()`",
            ]
        );
        assert!(changes.additions.is_empty(), "{changes:?}");
    }

    #[test]
    fn what_is_new_breaks_only_who_had_to_know_it() {
        let trait_ = "a::T trait";
        assert_eq!(
            found(&[trait_], &[trait_, "a::T::f required fn(&self)"]),
            (1, 0)
        );
        assert_eq!(
            found(&[trait_], &[trait_, "a::T::f provided fn(&self)"]),
            (0, 1)
        );
        // A trait that is new itself has no one who implements it.
        assert_eq!(found(&[], &[trait_, "a::T::f required fn(&self)"]), (0, 2));
        let (closed, open) = ("a::E enum", "a::E #[non_exhaustive] enum");
        assert_eq!(found(&[closed], &[closed, "a::E::V variant(u8)"]), (1, 0));
        assert_eq!(found(&[open], &[open, "a::E::V variant"]), (0, 1));
        let marked = "a::E::V #[non_exhaustive] variant { a: u8 }";
        assert_eq!(found(&[closed], &[closed, marked]), (1, 0));
        assert_eq!(found(&[open], &[open, marked]), (0, 1));
        let (all, some) = ("a::S struct {}", "a::S struct { .. }");
        assert_eq!(found(&[all], &[all, "a::S::x field: u8"]), (1, 0));
        assert_eq!(found(&[some], &[some, "a::S::x field: u8"]), (0, 1));
        assert_eq!(found(&[all], &[some]), (1, 0));
        assert_eq!(found(&[], &["a::S impl Clone for S", "a::f fn()"]), (0, 2));
    }

    #[test]
    fn a_feature_that_is_gone_breaks_who_asks_for_it() {
        assert_eq!(found(&["feature a", "feature b"], &["feature a"]), (1, 0));
        assert_eq!(found(&["feature a"], &["feature a", "feature b"]), (0, 1));
        assert_eq!(found(&["feature a"], &["feature b"]), (1, 0));
    }

    #[test]
    fn what_takes_more_than_before_is_no_break() {
        for (was, is) in [
            ("a::T::f required fn(&self)", "a::T::f provided fn(&self)"),
            ("a::f fn() #[cfg(feature = \"x\")]", "a::f fn()"),
            ("a::E #[non_exhaustive] enum", "a::E enum"),
        ] {
            assert_eq!(found(&[was], &[is]), (0, 1), "{was}");
            assert_eq!(found(&[is], &[was]), (1, 0), "{is}");
        }
    }

    #[test]
    fn only_another_version_that_cargo_tells_apart_may_break() {
        for (old, new, expected) in [
            ("0.1.0", "0.1.9", false),
            ("0.1.0", "0.2.0", true),
            ("0.1.0", "1.0.0", true),
            ("1.0.0", "1.9.0", false),
            ("1.0.0", "2.0.0-rc.1", true),
            ("0.0.1", "0.0.2", true),
            ("0.2.0", "0.1.0", false),
        ] {
            assert_eq!(may_break(old, new), expected, "{old} {new}");
        }
    }
}
