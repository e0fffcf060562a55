//! Resources that a client's list does not show, since another one before them has the same URI. The
//! log tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// How many URIs are named together, and the most characters of each.
const MAX_SHOWN: usize = 3;
const MAX_CHARS: usize = 200;

/// The owner of a resource that is hidden, and the owner of the one that is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HiddenBy<'a> {
    pub(super) hidden_owner: &'a str,
    pub(super) listed_owner: &'a str,
}

/// What was told of the list before.
#[derive(Debug, Default)]
pub(super) struct HiddenResources(Mutex<BTreeSet<String>>);

impl HiddenResources {
    /// Logs what a list hides, except for what was so in the list before.
    pub(super) fn log_new(&self, hidden: &BTreeMap<HiddenBy<'_>, Vec<&str>>) {
        for text in self.new_messages(hidden) {
            tracing::warn!("{text}");
        }
    }

    fn new_messages(&self, hidden: &BTreeMap<HiddenBy<'_>, Vec<&str>>) -> Vec<String> {
        let now: BTreeSet<String> = hidden.iter().map(|(by, uris)| text(*by, uris)).collect();
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = now.difference(&before).cloned().collect();
        *before = now;
        news
    }
}

fn text(
    HiddenBy {
        hidden_owner: of,
        listed_owner: by,
    }: HiddenBy<'_>,
    uris: &[&str],
) -> String {
    let shown = uris.iter().take(MAX_SHOWN);
    let shown = shown.map(|uri| {
        // A server wrote it, and the log is read line by line.
        let uri: String = uri.escape_debug().take(MAX_CHARS).collect();
        format!("`{uri}`")
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match uris.len().saturating_sub(MAX_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "resources of `{of}` are not listed, since `{by}` lists the same URIs: {shown}{more}. Leave \
         the resources of one of the two out (`resources = false` of an MCP server)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_told_once_and_again_when_it_is_other_resources() {
        let hidden = HiddenResources::default();
        let by = HiddenBy {
            hidden_owner: "b",
            listed_owner: "a",
        };
        let news = |uris: &[&str]| {
            let lists = BTreeMap::from([(by, uris.to_vec())]);
            hidden.new_messages(&lists)
        };
        let told = news(&["x://1"]);
        let [told] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(told.starts_with("resources of `b` are not listed, since `a` lists"));
        assert!(told.contains("`x://1`. "), "{told}");
        assert_eq!(news(&["x://1"]), [""; 0]);
        let told = news(&["x://1", "x://2", "x://3", "x://4", "x://5"]);
        assert!(told[0].contains("`x://3` and 2 more. "), "{told:?}");
        assert_eq!(hidden.new_messages(&BTreeMap::new()), [""; 0]);
        assert_eq!(news(&["x://1"]).len(), 1);
    }
}
