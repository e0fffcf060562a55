//! The list of a crate, and what a difference from it says.

use std::collections::BTreeSet;

use super::source::CrateSource;
use super::surface::{PublicItem, public_items};
use super::{PublishedCrate, between};
use crate::repo;

fn listed(text: &str) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("lib.rs");
    std::fs::write(&file, text).unwrap();
    let source = CrateSource::read("my-crate", &file).unwrap();
    let items = public_items(&source).unwrap();
    items
        .iter()
        .map(|item| format!("{} {}", item.path, item.description))
        .collect()
}

#[test]
fn items_stand_under_the_path_by_which_others_name_them() {
    let found = listed(
        "mod inner {
            pub struct Seen<T: std::fmt::Debug> { pub a: u8, b: T }
            pub struct Unseen;
            impl<T: std::fmt::Debug> Seen<T> {
                pub fn new(a: u8, b: T) -> Self where T: Clone { Self { a, b } }
                pub(crate) fn inside(&self) {}
            }
            impl std::fmt::Display for Unseen {}
        }
        #[cfg(feature = \"more\")]
        pub use inner::Seen as Renamed;
        pub use serde::Serialize;
        #[doc(hidden)]
        pub mod hidden { pub fn gone() {} }
        #[cfg(test)]
        pub fn in_tests() {}",
    );
    assert_eq!(
        found,
        [
            "my_crate::Renamed struct<T: Debug> { .. } #[cfg(feature = \"more\")]",
            "my_crate::Renamed::a field: u8 #[cfg(feature = \"more\")]",
            "my_crate::Renamed::new fn(u8, T) -> Self where T: Clone in impl<T: Debug> Seen<T>",
            "my_crate::Serialize use serde::Serialize",
        ]
    );
}

#[test]
fn each_kind_of_item_says_what_its_users_rely_on() {
    let found = listed(
        "#[derive(Clone, Debug)]
        #[cfg_attr(feature = \"schema\", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum Kind { One = 1, Two(String), Three { a: u8 } }
        impl Kind { pub const ALL: [u8; 2] = [1, 2]; }
        impl From<u8> for Kind { fn from(_: u8) -> Self { Self::One } }
        pub trait Act: Send { type Out; fn act(&mut self, how: &str) -> Self::Out; fn rest(self: Box<Self>) {} }
        impl Act for String { type Out = u8; fn act(&mut self, _: &str) -> u8 { 0 } }
        trait Own {}
        impl Own for Kind {}
        pub type Alias<T> = std::result::Result<T, Kind>;
        pub async unsafe fn go<F>(mut f: F) -> impl Sized where F: FnOnce(u8) -> Kind, {}
        pub struct Pair(pub u8, u8);
        #[macro_export] macro_rules! make { ($a:path $(,)?) => { $a }; () => {}; }
        macro_rules! methods { ($doc:literal) => { #[doc = $doc] pub fn made(mut self) -> Self { self } }; }
        impl Pair { methods!(\"text\"); }",
    );
    assert_eq!(
        found,
        [
            "my_crate::Act impl Act for String { type Out = u8 }",
            "my_crate::Act trait: Send",
            "my_crate::Act::Out required type",
            "my_crate::Act::act required fn(&mut self, &str) -> Self::Out",
            "my_crate::Act::rest provided fn(self: Box<Self>)",
            "my_crate::Alias type<T> = Result<T, Kind>",
            "my_crate::Kind #[non_exhaustive] #[repr(u32)] enum",
            "my_crate::Kind impl Clone for Kind",
            "my_crate::Kind impl Debug for Kind",
            "my_crate::Kind impl From<u8> for Kind",
            "my_crate::Kind impl JsonSchema for Kind #[cfg(feature = \"schema\")]",
            "my_crate::Kind::ALL const: [u8; 2]",
            "my_crate::Kind::One variant = 1",
            "my_crate::Kind::Three variant { a: u8 }",
            "my_crate::Kind::Two variant(String)",
            "my_crate::Pair struct(u8, _)",
            "my_crate::Pair::made fn(self) -> Self",
            "my_crate::go async unsafe fn<F>(F) -> impl Sized where F: FnOnce(u8) -> Kind",
            "my_crate::make macro ($a: path $(,) ?); ()",
        ]
    );
}

#[test]
fn the_sdk_has_what_its_macros_make_and_what_it_exports() {
    let root = repo::root().join("skill-sdk/src/lib.rs");
    let source = CrateSource::read("conjure-skill-sdk", &root).unwrap();
    let items = public_items(&source).unwrap();
    for line in [
        "conjure_skill_sdk::Skill::requires fn(self, &str) -> Self",
        "conjure_skill_sdk::protocol::op::SKILL_EXECUTE const: &str",
        "conjure_skill_sdk::protocol::op::ALL const: &[&str]",
        "conjure_skill_sdk::abi use conjure_abi",
        "conjure_skill_sdk::testkit::Transport::BOTH const: [Self; 2] #[cfg(feature = \"testkit\")]",
    ] {
        assert!(items.contains(&PublicItem::read(line).unwrap()), "{line}");
    }
    let is_there = |path: &str| items.iter().any(|item| item.path == path);
    for path in [
        "conjure_skill_sdk::Executor",
        "conjure_skill_sdk::export_skill",
    ] {
        assert!(is_there(path), "{path}");
    }
    assert!(!is_there("conjure_skill_sdk::export"), "it is hidden");
    assert!(
        !is_there("conjure_skill_sdk::__export_plugin"),
        "it is hidden"
    );
}

fn published(version: &str, lines: &[&str]) -> PublishedCrate {
    PublishedCrate {
        name: "a".to_owned(),
        version: version.to_owned(),
        items: lines
            .iter()
            .filter_map(|line| PublicItem::read(line))
            .collect(),
    }
}

#[test]
fn a_list_that_is_read_again_is_the_same() {
    let before = published("0.1.0", &["a::f fn(&str) -> u8", "a::T impl Clone for T"]);
    let after = PublishedCrate::from_list(&before.list()).unwrap();
    assert_eq!((after.name, after.version), (before.name, before.version));
    assert_eq!(
        between(&before.items, &after.items),
        super::Changes::default()
    );
    assert_eq!(after.items.len(), 2);
    assert!(PublishedCrate::from_list("a::f fn()\n").is_err());
}

#[test]
fn what_breaks_is_written_down_with_a_version_that_may_break_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("public-api/a.txt");
    let first = published("0.1.0", &["a::f fn()", "a::g fn()"]);
    assert!(
        first
            .compare(&path)
            .unwrap_err()
            .to_string()
            .contains("has no list")
    );
    first.write(&path).unwrap();
    first.compare(&path).unwrap();

    let grown = published("0.1.1", &["a::f fn()", "a::g fn()", "a::h fn()"]);
    let error = grown.compare(&path).unwrap_err().to_string();
    assert!(
        error.contains("nothing that compiles against 0.1.0 breaks"),
        "{error}"
    );
    assert!(error.contains("a::h is new: `fn()`"), "{error}");
    grown.write(&path).unwrap();
    grown.compare(&path).unwrap();

    let less = ["a::f fn(u8)", "a::h fn()"];
    let broken = published("0.1.2", &less);
    for result in [broken.compare(&path), broken.write(&path)] {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("crates that compile against a 0.1.1 break"),
            "{error}"
        );
        assert!(error.contains("a::f was `fn()` and is `fn(u8)`"), "{error}");
        assert!(error.contains("a::g is gone: `fn()`"), "{error}");
    }
    let next = published("0.2.0", &less);
    next.write(&path).unwrap();
    next.compare(&path).unwrap();
    let listed: BTreeSet<String> = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    assert!(
        listed.contains("# a 0.2.0") && listed.contains("a::f fn(u8)"),
        "{listed:?}"
    );
}

#[test]
fn the_features_of_a_package_are_part_of_its_list() {
    let package = serde_json::json!({ "name": "a", "features": { "default": ["x"], "x": [] } });
    let lines = ["feature default", "feature x"].map(|line| PublicItem::read(line).unwrap());
    assert_eq!(super::features(&package), lines);
    assert!(super::features(&serde_json::json!({})).is_empty());
}
