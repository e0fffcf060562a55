//! Lists in pages: a cursor says where the next one begins, and only this server reads it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;

/// Items of a page unless told otherwise.
const DEFAULT_LIMIT: u64 = 50;
/// The most items of a page.
pub(super) const MAX_LIMIT: u64 = 200;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// The items, in the order of the list.
    pub(super) items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// Position and size of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// `next` of the page before; the first page without it.
    pub(super) cursor: Option<String>,
    /// The most items.
    #[param(minimum = 1, maximum = 200, default = 50)]
    pub(super) limit: Option<u64>,
}

/// How many items.
pub(super) fn limit(asked: Option<u64>) -> Result<u64, Problem> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        Ok(limit)
    } else {
        Err(Problem::invalid(format!("`limit` is 1 to {MAX_LIMIT}")))
    }
}

impl Paging {
    pub(super) fn limit(&self) -> Result<u64, Problem> {
        limit(self.limit)
    }

    /// The id behind which the page begins.
    pub(super) fn after(&self) -> Result<Option<String>, Problem> {
        self.cursor.as_deref().map(read).transpose()
    }
}

impl<T> Page<T> {
    /// A page of a list that was asked for one item more than it shows.
    pub(super) fn from_items(mut items: Vec<T>, limit: u64, id: impl Fn(&T) -> &str) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_last = items.len() <= limit;
        items.truncate(limit);
        let last = items.last().filter(|_| !is_last);
        let next = last.map(|last| write(id(last)));
        Self { items, next }
    }
}

/// A cursor.
pub(super) fn write(place: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(place)
}

/// What a cursor says.
pub(super) fn read(cursor: &str) -> Result<String, Problem> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.filter(|text| !text.contains('\0')).ok_or_else(bad)
}

/// What is said of a cursor that no page had.
pub(super) fn bad() -> Problem {
    Problem::invalid("`cursor` is none of this server's: take `next` of the page before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let items = || vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let page = Page::from_items(items(), 2, |item| item);
        assert_eq!(page.items, ["a", "b"]);
        assert_eq!(read(&page.next.unwrap()).unwrap(), "b");
        assert_eq!(Page::from_items(items(), 3, |item| item).next, None);
        assert!(read("not base64!").is_err());
    }
}
