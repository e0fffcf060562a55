//! URI templates (RFC 6570), read backwards: which values make this URI out of the template.
//!
//! Understood are `{name}` (no `/` in its value), `{+name}` and `{name*}` (any text), and
//! `{?a,b}` at the end, whose parameters may be absent and in any order.

use crate::error::{Error, Result};

/// A template that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UriTemplate {
    pieces: Vec<TemplatePiece>,
    query: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Variable { name: String, slashes: bool },
}

impl UriTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// What in it is not understood.
    pub(super) fn read(template: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::invalid(format!(
                "the URI template `{template}` {what}: write `{{name}}`, `{{+name}}`, or \
                 `{{?a,b}}` at the end"
            ))
        };
        let (mut pieces, mut query) = (Vec::new(), Vec::new());
        let mut rest = template;
        while !rest.is_empty() {
            if !query.is_empty() {
                return Err(wrong("goes on behind its query"));
            }
            let Some((before, behind)) = rest.split_once('{') else {
                pieces.push(TemplatePiece::Text(rest.to_owned()));
                break;
            };
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.to_owned()));
            }
            let Some((inside, after)) = behind.split_once('}') else {
                return Err(wrong("has a brace that does not close"));
            };
            rest = after;
            if let Some(names) = inside.strip_prefix('?') {
                query.extend(names.split(',').map(str::to_owned));
            } else {
                let slashes = inside.starts_with('+') || inside.ends_with('*');
                let name = inside.trim_start_matches('+').trim_end_matches('*');
                if matches!(pieces.last(), Some(TemplatePiece::Variable { .. })) {
                    return Err(wrong("has two variables with nothing between them"));
                }
                pieces.push(TemplatePiece::Variable {
                    name: name.to_owned(),
                    slashes,
                });
            }
        }
        let names = pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Variable { name, .. } => Some(name),
            TemplatePiece::Text(_) => None,
        });
        let is_name = |name: &String| {
            let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '-';
            !name.is_empty() && name.chars().all(word)
        };
        if !names.chain(&query).all(is_name) {
            return Err(wrong("has a variable that is not understood"));
        }
        Ok(Self { pieces, query })
    }

    /// The variables with which the template makes this URI, if it can.
    pub(super) fn matches(&self, uri: &str) -> Option<Vec<(String, String)>> {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) if !self.query.is_empty() => (path, query),
            _ => (uri, ""),
        };
        let mut found = Vec::new();
        let mut rest = path;
        for (index, piece) in self.pieces.iter().enumerate() {
            match piece {
                TemplatePiece::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                TemplatePiece::Variable { name, slashes } => {
                    let end = match self.pieces.get(index + 1..).unwrap_or_default() {
                        [TemplatePiece::Text(text)] => rest.rfind(text.as_str())?,
                        [TemplatePiece::Text(text), ..] if *slashes => rest.rfind(text.as_str())?,
                        [TemplatePiece::Text(text), ..] => rest.find(text.as_str())?,
                        _ => rest.len(),
                    };
                    let (value, behind) = rest.split_at_checked(end)?;
                    if value.is_empty() || (!slashes && value.contains('/')) {
                        return None;
                    }
                    found.push((name.clone(), percent_decode(value)?));
                    rest = behind;
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if self.query.iter().any(|known| known == name) {
                found.push((name.to_owned(), percent_decode(value)?));
            }
        }
        Some(found)
    }
}

/// The text without `%XX`; none when that is not UTF-8.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = behind.get(..2).filter(|_| *first == b'%');
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => behind.get(2..).unwrap_or_default(),
            None => behind,
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn found(template: &str, uri: &str) -> Option<String> {
        let found = UriTemplate::read(template).unwrap().matches(uri)?;
        Some(found.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = write!(text, "{name}={value};");
            text
        }))
    }

    #[test]
    fn a_uri_gives_back_the_variables_that_made_it() {
        for (template, uri, expected) in [
            (
                "test://template/{id}/data",
                "test://template/123/data",
                Some("id=123;"),
            ),
            (
                "test://template/{id}/data",
                "test://template/1/2/data",
                None,
            ),
            ("test://template/{id}/data", "test://template//data", None),
            ("test://template/{id}/data", "test://template/123/dat", None),
            (
                "test://template/{id}/data",
                "test://template/123/data/more",
                None,
            ),
            ("note://{day}", "note://a%20b%C3%A9", Some("day=a bé;")),
            ("note://{day}", "note://100%", Some("day=100%;")),
            ("note://{day}", "note://%FF", None),
            ("file:///{+path}", "file:///a/b.txt", Some("path=a/b.txt;")),
            (
                "git://{repo*}/-/{file}",
                "git://a/-/b/-/c",
                Some("repo=a/-/b;file=c;"),
            ),
            (
                "db://{table}{?limit,from}",
                "db://users",
                Some("table=users;"),
            ),
            (
                "db://{table}{?limit,from}",
                "db://users?from=2&other=1&limit=3",
                Some("table=users;from=2;limit=3;"),
            ),
            ("plain://x", "plain://x", Some("")),
            ("x://{name}.json", "x://a.json.json", Some("name=a.json;")),
        ] {
            assert_eq!(
                found(template, uri).as_deref(),
                expected,
                "{template} {uri}"
            );
        }
    }

    #[test]
    fn a_template_that_is_not_understood_is_refused_with_what_to_write() {
        for template in [
            "a://{x",
            "a://{}",
            "a://{#x}",
            "a://{x}{y}",
            "a://{?q}/more",
        ] {
            let error = UriTemplate::read(template).unwrap_err();
            assert!(error.message().contains(template), "{error}");
            assert!(error.message().contains("write `{name}`"), "{error}");
        }
    }
}
