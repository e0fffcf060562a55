//! URI templates (RFC 6570, all four levels): whether a URI may be an expansion of one, and which
//! of several templates says more about it.
//!
//! Nothing is expanded, and no variable is read out of a URI: the server that has the template
//! does that. Templates are other people's, so they become expressions that match in linear time.

use std::fmt::Write as _;

use regex_lite::RegexBuilder;

/// The most bytes of a template and of a URI that are compared, and of the expression that a
/// template becomes.
const MAX_BYTES: usize = 4 * 1024;
const MAX_COMPILED_BYTES: usize = 1024 * 1024;
/// A longer prefix of a value (`{var:64}`) counts as the whole value.
const MAX_PREFIX_CHARS: usize = 64;

/// A character of a value that is expanded simply. Stricter than what servers take would be
/// without `!`, `:` and their like: RFC 6570 encodes them, and many who write URIs do not.
const SIMPLE: &str = "[^/?#]";
/// A character of a pair's value in a query.
const IN_QUERY: &str = "[^&#]";

/// How much a template says about the URIs that it stands for; the greater one says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Bytes that are the same in each.
    literal: usize,
    /// Whether no variable may hold a `/`.
    is_bounded: bool,
    /// The fewer variables the better.
    variables: std::cmp::Reverse<usize>,
}

/// The template's rank if the URI may be an expansion of it. A template that is none fits nothing.
#[must_use]
pub fn fits(template: &str, uri: &str) -> Option<Rank> {
    // Most of those that do not fit begin otherwise, and are not looked at any further.
    let literal = template.split('{').next().unwrap_or_default();
    if template.len().max(uri.len()) > MAX_BYTES || !uri.starts_with(literal) {
        return None;
    }
    let (pattern, rank) = expression(template)?;
    let pattern = RegexBuilder::new(&pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .build()
        .ok()?;
    pattern.is_match(uri).then_some(rank)
}

/// The template as a regular expression.
fn expression(template: &str) -> Option<(String, Rank)> {
    let mut pattern = "^".to_owned();
    let mut rank = Rank {
        literal: 0,
        is_bounded: true,
        variables: std::cmp::Reverse(0),
    };
    let mut rest = template;
    while !rest.is_empty() {
        let (literal, after) = rest.split_once('{').unwrap_or((rest, ""));
        if literal.contains('}') {
            return None;
        }
        pattern.push_str(&regex_lite::escape(literal));
        rank.literal += literal.len();
        if literal.len() == rest.len() {
            break;
        }
        let (inner, after) = after.split_once('}')?;
        let (operator, list) = match inner.chars().next()? {
            operator @ ('+' | '#' | '.' | '/' | ';' | '?' | '&') => {
                (operator, inner.get(1..).unwrap_or_default())
            }
            _ => (' ', inner),
        };
        let variables: Vec<Variable<'_>> =
            list.split(',').map(Variable::read).collect::<Option<_>>()?;
        rank.variables.0 += variables.len();
        let spans = |one: &Variable<'_>| operator == '/' && one.explodes;
        rank.is_bounded &= !matches!(operator, '+' | '#') && !variables.iter().any(spans);
        part(&mut pattern, operator, &variables);
        rest = after;
    }
    pattern.push('$');
    Some((pattern, rank))
}

/// A variable with its modifier.
struct Variable<'a> {
    name: &'a str,
    explodes: bool,
    prefix: Option<usize>,
}

impl<'a> Variable<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (name, explodes, prefix) = match text.split_once(':') {
            Some((name, most)) => (name, false, Some(most.parse().ok()?)),
            None => match text.strip_suffix('*') {
                Some(name) => (name, true, None),
                None => (text, false, None),
            },
        };
        // Also a hyphen, which the RFC does not allow and servers write.
        let is_of_one = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '%');
        let is_name = !name.is_empty() && name.chars().all(is_of_one);
        is_name.then_some(Self {
            name,
            explodes,
            prefix,
        })
    }

    /// A regular expression for the variable's value, of characters of this class.
    fn value(&self, class: &str) -> String {
        match self.prefix {
            // A character may be encoded, as up to four bytes.
            Some(most) if most <= MAX_PREFIX_CHARS => {
                format!("(?:(?:%[0-9A-Fa-f]{{2}}){{1,4}}|{class}){{0,{most}}}")
            }
            _ => format!("{class}*"),
        }
    }
}

/// One expression. Every variable may be undefined, and is nothing then.
fn part(pattern: &mut String, operator: char, variables: &[Variable<'_>]) {
    let joined = |class: &str| {
        let values: Vec<String> = variables.iter().map(|one| one.value(class)).collect();
        // Those that are undefined leave no separator.
        values.join(",?")
    };
    match operator {
        '+' => pattern.push_str(&joined("(?s:.)")),
        '#' => _ = write!(pattern, "(?:#{})?", joined("(?s:.)")),
        '.' | '/' | ';' => {
            for one in variables {
                let value = one.value(if operator == ';' { "[^/?#;]" } else { SIMPLE });
                let value = match operator {
                    // A list or pairs of any names, where it explodes.
                    ';' if !one.explodes => {
                        format!("{}(?:={value})?", regex_lite::escape(one.name))
                    }
                    _ => value,
                };
                let times = if one.explodes { '*' } else { '?' };
                _ = write!(
                    pattern,
                    "(?:{}{value}){times}",
                    regex_lite::escape(&operator.to_string())
                );
            }
        }
        '?' | '&' => {
            let pair = |one: &Variable<'_>| match one.explodes {
                true => "[^#]*".to_owned(),
                false => format!("{}=?{}", regex_lite::escape(one.name), one.value(IN_QUERY)),
            };
            let pairs: Vec<String> = variables.iter().map(pair).collect();
            // In any order: whoever fills the template in by hand knows of none.
            let pair = format!("(?:{})", pairs.join("|"));
            if operator == '?' {
                _ = write!(pattern, r"(?:\?(?:{pair}(?:&{pair})*)?)?");
            } else {
                _ = write!(pattern, "(?:&{pair})*");
            }
        }
        _ => pattern.push_str(&joined(SIMPLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansions_of_every_kind_fit_their_templates() {
        // Of the examples of the RFC, and of its rules about what is undefined.
        for (template, uris) in [
            (
                "a://{var}",
                &["a://value", "a://", "a://Hello%20World%21"][..],
            ),
            ("a://{x,y}", &["a://1024,768", "a://1024"]),
            ("a://{var:3}", &["a://val", "a://v", "a://%E2%82%ACab"]),
            ("a://{list*}", &["a://red,green,blue"]),
            ("a://{+path}/here", &["a:///foo/bar/here", "a://x?y#z/here"]),
            ("a://x{#path,y}", &["a://x#/foo/bar,7", "a://x"]),
            ("a://x{.y,z}", &["a://x.com.768", "a://x.com", "a://x"]),
            ("a://{/a,b}/here", &["a:///1/2/here", "a:///1/here"]),
            ("a:/{/list*}", &["a://red/green/blue", "a:/"]),
            (
                "a://x{;y,empty}",
                &["a://x;y=768;empty", "a://x;y=768", "a://x"],
            ),
            ("a://x{;keys*}", &["a://x;semi=%3B;dot=."]),
            (
                "a://x{?y,z}",
                &["a://x?y=1&z=", "a://x?z=2&y=1", "a://x?y=1", "a://x"],
            ),
            ("a://x{?keys*}", &["a://x?b=1&c=2"]),
            (
                "a://x?fixed=yes{&y}",
                &["a://x?fixed=yes&y=1", "a://x?fixed=yes"],
            ),
            ("a://(x).{y}", &["a://(x).y"]),
            ("a://{user-id}/{größe}", &["a://7/8"]),
        ] {
            for uri in uris {
                assert!(fits(template, uri).is_some(), "{template} {uri}");
            }
        }
    }

    #[test]
    fn other_uris_do_not() {
        for (template, uris) in [
            (
                "a://{var}",
                &["a://x/y", "a://x?y", "a://x#y", "b://x", "a:/x"][..],
            ),
            ("a://{var:3}", &["a://value"]),
            ("a://{+path}/here", &["a:///foo/bar"]),
            ("a://x{.y}", &["a://xcom", "a://x/com"]),
            ("a://x{?y,z}", &["a://x?a=1", "a://x?y=1#z", "a://xy=1"]),
            ("a://(x).{y}", &["a://xZy"]),
            ("a://x", &["a://xy"]),
        ] {
            for uri in uris {
                assert!(fits(template, uri).is_none(), "{template} {uri}");
            }
        }
        // Nothing fits what is no template.
        for template in [
            "a://{x",
            "a://x}",
            "a://{}",
            "a://{=x}",
            "a://{a b}",
            "a://{x:y}",
        ] {
            assert!(fits(template, "a://x").is_none(), "{template}");
        }
        let endless = format!("a://{}", "{+x}".repeat(MAX_BYTES));
        assert!(fits(&endless, "a://x").is_none());
    }

    #[test]
    fn the_one_that_says_more_comes_first() {
        let in_order = [
            "file:///notes/today.md",
            "file:///notes/{name}.md",
            "file:///notes/{name}",
            "file:///{dir}/{name}",
            "file:///{+path}",
            "{+uri}",
        ];
        let ranks = in_order.map(|template| fits(template, "file:///notes/today.md").unwrap());
        assert!(ranks.is_sorted_by(|a, b| a > b), "{ranks:?}");
        let one = fits("x://{id}", "x://1");
        assert_eq!(one, fits("x://{other}", "x://1"), "names say nothing");
        assert!(one > fits("x://{+id}", "x://1"));
    }

    #[test]
    fn a_template_that_was_made_to_take_long_does_not() {
        let template = format!("a://{}!", "{+x}".repeat(200));
        let uri = format!("a://{}", "x".repeat(4_000));
        assert!(fits(&template, &uri).is_none());
    }
}
