//! The pages of a list: counted and measured, so that no list fills the memory.
//!
//! A cursor that comes again ends the list.

use std::collections::HashSet;
use std::io;

use rmcp::model::{ClientRequest, PaginatedRequestParams};
use serde_json::Value;

use crate::config::RequestLimits;
use crate::connection::{Connection, RequestOptions};
use crate::digest::digest;
use crate::failure::Failure;
use crate::listing::Quarantined;
use crate::request_failure::RequestFailure;
use crate::secrets::beginning;

/// The most pages of a list, and the most items.
const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 5_000;
/// The most bytes of a list, over all its pages, and of one of its items, as JSON.
const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;
const MAX_ITEM_BYTES: usize = 512 * 1024;
/// The most bytes that are shown of the name of an item that is left out.
const MAX_SHOWN_BYTES: usize = 200;
/// JSON-RPC's code for a method that is not served.
const METHOD_NOT_FOUND: i32 = -32601;

/// What was read of a list.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) items: Vec<Value>,
    /// Items that are too large, and the rest of a list that is too long.
    pub(crate) omitted: Vec<Quarantined>,
    /// Size of the items so far, also of those that were left out.
    bytes: usize,
}

impl Pages {
    /// Reads all pages of a list.
    ///
    /// # Errors
    /// Why one of them could not be read.
    pub(crate) async fn read(
        connection: &Connection,
        server: &str,
        limits: RequestLimits,
        field: &str,
        request: impl Fn(PaginatedRequestParams) -> ClientRequest,
    ) -> Result<Self, RequestFailure> {
        let mut pages = Self::default();
        let mut seen = HashSet::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = connection
                .request(request(params), RequestOptions::for_host(limits))
                .await;
            let mut page = match page {
                Ok(page) => page,
                Err(RequestFailure::Failed(Failure::Refused { code, .. }))
                    if code == METHOD_NOT_FOUND && pages.items.is_empty() =>
                {
                    return Ok(pages);
                }
                Err(trouble) => return Err(trouble),
            };
            let Some(Value::Array(more)) = page.get_mut(field).map(Value::take) else {
                return Err(RequestFailure::Failed(Failure::BadAnswer {
                    server: server.to_owned(),
                    why: format!("it has no list of {field}"),
                }));
            };
            if let Err(why) = pages.take(field, more) {
                pages.omit_rest(field, why);
                return Ok(pages);
            }
            // An empty cursor is a cursor too.
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(next) if seen.insert(digest(next.as_bytes())) => {
                    cursor = Some(next.to_owned());
                }
                _ => return Ok(pages),
            }
        }
        pages.omit_rest(field, format!("the list has more than {MAX_PAGES} pages"));
        Ok(pages)
    }

    /// Takes the items of a page.
    ///
    /// # Errors
    /// Why the list ends here.
    fn take(&mut self, field: &str, page: Vec<Value>) -> Result<(), String> {
        for item in page {
            if self.items.len() >= MAX_ITEMS {
                return Err(format!("the list has more than {MAX_ITEMS} items"));
            }
            let left = MAX_LIST_BYTES.saturating_sub(self.bytes);
            let Some(bytes) = size(&item, left) else {
                return Err(format!("the list has more than {MAX_LIST_BYTES} bytes"));
            };
            self.bytes += bytes;
            if bytes > MAX_ITEM_BYTES {
                self.omitted.push(Quarantined {
                    name: describe_item(field, &item),
                    why: format!("it has more than {MAX_ITEM_BYTES} bytes"),
                });
            } else {
                self.items.push(item);
            }
        }
        Ok(())
    }

    fn omit_rest(&mut self, field: &str, why: String) {
        let name = format!("the rest of its {field}");
        self.omitted.push(Quarantined { name, why });
    }
}

/// An item for people.
fn describe_item(field: &str, item: &Value) -> String {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    match text("name").or_else(|| text("uri")) {
        Some(name) => {
            let name = beginning(name.to_owned(), MAX_SHOWN_BYTES);
            format!("`{name}` of its {field}")
        }
        None => format!("one of its {field}"),
    }
}

/// How many bytes a value has as JSON, if that is at most `most`.
fn size(value: &Value, most: usize) -> Option<usize> {
    let mut counted = CountedBytes {
        bytes: 0,
        limit: most,
    };
    serde_json::to_writer(&mut counted, value).ok()?;
    Some(counted.bytes)
}

/// Counts what is written to it, and takes no more than so much.
struct CountedBytes {
    bytes: usize,
    limit: usize,
}

impl io::Write for CountedBytes {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(name: &str, bytes: usize) -> Value {
        json!({ "name": name, "x": "x".repeat(bytes) })
    }

    #[test]
    fn a_size_is_that_of_the_text() {
        let value = json!({ "a": [1, 2.5, null, "\"\u{e4}"], "b": {} });
        let bytes = value.to_string().len();
        assert_eq!(size(&value, bytes), Some(bytes));
        assert_eq!(size(&value, bytes - 1), None);
    }

    #[test]
    fn an_item_that_is_too_large_costs_only_itself() {
        let mut pages = Pages::default();
        let page = vec![item("a", 1), item("large", MAX_ITEM_BYTES), item("b", 1)];
        pages.take("tools", page).unwrap();
        let names: Vec<&Value> = pages.items.iter().map(|item| &item["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        let [left_out] = pages.omitted.as_slice() else {
            panic!("one is left out");
        };
        assert_eq!(left_out.name, "`large` of its tools");
        assert!(left_out.why.contains("524288 bytes"), "{}", left_out.why);
    }

    #[test]
    fn all_pages_of_a_list_have_so_many_bytes_and_items() {
        let mut pages = Pages::default();
        let ended = (0..100).find_map(|_| {
            let page = vec![item("a", MAX_ITEM_BYTES / 2)];
            pages.take("tools", page).err()
        });
        assert!(ended.unwrap().contains("16777216 bytes"));
        assert!(pages.items.len() < 65, "{}", pages.items.len());
        let mut pages = Pages::default();
        // What is left out counts too.
        let ended = (0..100).find_map(|_| {
            let page = vec![item("a", MAX_LIST_BYTES / 4)];
            pages.take("tools", page).err()
        });
        assert!(ended.is_some() && pages.items.is_empty());
        let mut pages = Pages::default();
        let page = vec![json!({}); MAX_ITEMS + 1];
        let why = pages.take("tools", page).unwrap_err();
        assert!(why.contains("5000 items"), "{why}");
        assert_eq!(pages.items.len(), MAX_ITEMS);
    }
}
