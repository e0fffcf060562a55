//! The commonest mistake in front matter: a colon in a value that is not quoted.
//!
//! Line-based on purpose: it runs only on text that is no YAML, so there is no tree to work
//! on. Changes nothing else, and says which fields it touched.

/// Front matter with some values quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuotedFrontMatter {
    /// The changed text; it has as many lines as the original.
    pub(super) yaml: String,
    /// The changed fields and the index of each one's line, counted from 0.
    pub(super) fields: Vec<(String, usize)>,
}

/// Quotes every plain value with a colon in it; `None` when there is none.
pub(super) fn quote_colons(source: &str) -> Option<QuotedFrontMatter> {
    let lines: Vec<&str> = source.lines().collect();
    let mut yaml = String::with_capacity(source.len() + 16);
    let mut fields = Vec::new();
    let mut index = 0;
    while let Some(line) = lines.get(index) {
        let Some(field) = ScalarField::of(line) else {
            push(&mut yaml, line);
            index += 1;
            continue;
        };
        let rest = lines.get(index + 1..).unwrap_or_default();
        let continued = if field.value.is_empty() {
            0
        } else {
            field.continuation(rest)
        };
        let continuation = rest.get(..continued).unwrap_or_default();
        let text = folded(field.value, continuation);
        if field.is_plain() && (text.contains(": ") || text.ends_with(':')) {
            let indent = line.get(..field.indent).unwrap_or_default();
            push(
                &mut yaml,
                &format!("{indent}{}: '{}'", field.key, text.replace('\'', "''")),
            );
            yaml.extend(std::iter::repeat_n('\n', continued));
            fields.push((field.key.to_owned(), index));
        } else {
            push(&mut yaml, line);
            for line in continuation {
                push(&mut yaml, line);
            }
        }
        index += 1 + continued;
    }
    (!fields.is_empty()).then_some(QuotedFrontMatter { yaml, fields })
}

struct ScalarField<'a> {
    indent: usize,
    key: &'a str,
    value: &'a str,
}

impl<'a> ScalarField<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let trimmed = line.trim_start_matches(' ');
        let (key, value) = trimmed.split_once(':')?;
        let is_key = !key.is_empty()
            && !key.starts_with('-')
            && key
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let is_value = value.is_empty() || value.starts_with([' ', '\t']);
        (is_key && is_value).then(|| Self {
            indent: line.len() - trimmed.len(),
            key,
            value: value.trim(),
        })
    }

    /// Plain: neither quoted, nor a block, a list, a map, an anchor, an alias, a tag, a comment.
    fn is_plain(&self) -> bool {
        !self
            .value
            .starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#'])
    }

    /// How many of the next lines belong to this value: those that are indented deeper, and
    /// in a block also the blank ones between.
    fn continuation(&self, rest: &[&str]) -> usize {
        let blanks = !self.is_plain();
        rest.iter()
            .take_while(|line| {
                let trimmed = line.trim_start_matches(' ');
                if trimmed.trim().is_empty() {
                    blanks
                } else {
                    line.len() - trimmed.len() > self.indent
                }
            })
            .count()
    }
}

fn folded(value: &str, continuation: &[&str]) -> String {
    let mut text = value.to_owned();
    for line in continuation {
        text.push(' ');
        text.push_str(line.trim());
    }
    text
}

fn push(yaml: &mut String, line: &str) {
    yaml.push_str(line);
    yaml.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b18_only_plain_values_with_a_colon_are_quoted() {
        let source = "\
name: logs
description: Use when: it's
  needed: often
license: MIT
compatibility: |
  first: second: third

  more: yes: no
metadata:
  usage: run: it
  url: http://x/y
";
        let quoted = quote_colons(source).unwrap();
        assert_eq!(
            quoted,
            QuotedFrontMatter {
                yaml: "\
name: logs
description: 'Use when: it''s needed: often'

license: MIT
compatibility: |
  first: second: third

  more: yes: no
metadata:
  usage: 'run: it'
  url: http://x/y
"
                .into(),
                fields: vec![("description".into(), 1), ("usage".into(), 9)],
            }
        );
    }

    #[test]
    fn text_without_such_a_value_is_left_alone() {
        assert_eq!(quote_colons("name: logs\nurl: http://x\nbad: [\n"), None);
        assert_eq!(quote_colons("quoted: \"a: b\"\n"), None);
    }
}
