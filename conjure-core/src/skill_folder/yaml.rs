//! Front matter's YAML as a value, within bounds.
//!
//! A file of somebody else's is read, so text, depth, values and what aliases repeat are limited, and
//! reading stops at the first thing beyond a limit: its cost is that of the text in front of it.
//! Scalars are typed as YAML 1.2's core schema says, and keep how they were written. Tags beside the
//! core's are dropped.

use std::collections::{HashMap, HashSet};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Number, Value};

/// The most bytes of front matter. Real ones have one or two thousand.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// How deep lists and maps may stand inside each other.
const MAX_DEPTH: usize = 32;
/// How many values there may be, those that aliases repeat among them.
const MAX_VALUES: usize = 10_000;
/// How many bytes of text aliases may repeat.
const MAX_REPEATED_BYTES: usize = 256 * 1024;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Yaml {
    Scalar {
        value: Value,
        /// The scalar as it was written, without quotes.
        source_text: String,
    },
    List(Vec<Yaml>),
    Map(Vec<(Yaml, Yaml)>),
}

/// Why a text is no front matter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum YamlError {
    /// The text is no YAML.
    #[error("{what}")]
    Syntax { what: String, line: usize },
    /// A key comes twice in one map.
    #[error("the key `{key}` stands there twice")]
    Duplicate { key: String, line: usize },
    /// A value holds an alias of itself.
    #[error("an alias stands inside of what it repeats")]
    Recursive { line: usize },
    /// The text has more of something than front matter may have.
    #[error("{what}, and front matter has at most {most}")]
    TooMuch {
        what: &'static str,
        most: usize,
        line: usize,
    },
}

impl YamlError {
    /// Line of the error in the text, counted from 1.
    pub(super) fn line(&self) -> usize {
        match self {
            Self::Syntax { line, .. }
            | Self::Duplicate { line, .. }
            | Self::Recursive { line }
            | Self::TooMuch { line, .. } => *line,
        }
    }
}

/// Reads a text of one document; null where it has none.
pub(super) fn read(source: &str) -> Result<Yaml, YamlError> {
    if source.len() > MAX_BYTES {
        return Err(YamlError::TooMuch {
            what: "it has too many bytes",
            most: MAX_BYTES,
            line: 1,
        });
    }
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut reader = YamlReader::default();
    for event in Parser::new_from_str_with_options(source, options) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        reader.line = span.start.line();
        reader.event(event)?;
    }
    Ok(reader.root.unwrap_or_else(Yaml::null))
}

fn syntax(error: &ScanError) -> YamlError {
    let line = error.marker().line();
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return YamlError::TooMuch {
            what: "it is too deeply nested",
            most: MAX_DEPTH,
            line,
        };
    }
    YamlError::Syntax {
        what: error.info(),
        line,
    }
}

#[derive(Default)]
struct YamlReader {
    /// The collections that are open, from the outermost.
    open: Vec<OpenCollection>,
    root: Option<Yaml>,
    /// What anchors stand for, with how much it is.
    anchors: HashMap<usize, (Yaml, Size)>,
    size: Size,
    repeated: usize,
    line: usize,
}

/// How much a value is.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
}

/// A collection while it comes in.
struct OpenCollection {
    anchor: usize,
    /// What had come when it began.
    size_before: Size,
    kind: CollectionKind,
}

enum CollectionKind {
    List(Vec<Yaml>),
    Map {
        pairs: Vec<(Yaml, Yaml)>,
        keys: HashSet<String>,
        /// A key whose value has not come.
        key: Option<Yaml>,
    },
}

impl YamlReader {
    fn event(&mut self, event: Event<'_>) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let before = self.size;
                self.count(text.len())?;
                let value = scalar(&text, style, tag.as_deref());
                let written = text.into_owned();
                self.put(
                    Yaml::Scalar {
                        value,
                        source_text: written,
                    },
                    anchor,
                    before,
                )
            }
            Event::SequenceStart(_, anchor, _) => {
                self.begin(anchor, CollectionKind::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                let kind = CollectionKind::Map {
                    pairs: Vec::new(),
                    keys: HashSet::new(),
                    key: None,
                };
                self.begin(anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                let value = match open.kind {
                    CollectionKind::List(items) => Yaml::List(items),
                    CollectionKind::Map { pairs, .. } => Yaml::Map(pairs),
                };
                self.put(value, open.anchor, open.size_before)
            }
            Event::Alias(anchor) => {
                let line = self.line;
                let found = self.anchors.get(&anchor);
                let Some((value, size)) = found.cloned() else {
                    return Err(YamlError::Recursive { line });
                };
                let before = self.size;
                self.repeated += size.bytes;
                if self.repeated > MAX_REPEATED_BYTES {
                    return Err(
                        self.too_much("its aliases repeat too many bytes", MAX_REPEATED_BYTES)
                    );
                }
                self.size.values += size.values;
                self.size.bytes += size.bytes;
                self.within_values()?;
                self.put(value, 0, before)
            }
            Event::DocumentStart(..) if self.root.is_some() => Err(YamlError::Syntax {
                what: "there is a second document".to_owned(),
                line: self.line,
            }),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, kind: CollectionKind) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.too_much("it is too deeply nested", MAX_DEPTH));
        }
        let before = self.size;
        self.count(0)?;
        self.open.push(OpenCollection {
            anchor,
            size_before: before,
            kind,
        });
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), YamlError> {
        self.size.values += 1;
        self.size.bytes += bytes;
        self.within_values()
    }

    fn within_values(&self) -> Result<(), YamlError> {
        if self.size.values > MAX_VALUES {
            return Err(self.too_much("it has too many values", MAX_VALUES));
        }
        Ok(())
    }

    fn too_much(&self, what: &'static str, most: usize) -> YamlError {
        YamlError::TooMuch {
            what,
            most,
            line: self.line,
        }
    }

    /// Puts a value that is whole where it belongs.
    fn put(&mut self, value: Yaml, anchor: usize, before: Size) -> Result<(), YamlError> {
        if anchor != 0 {
            let size = Size {
                values: self.size.values - before.values,
                bytes: self.size.bytes - before.bytes,
            };
            // Kept beside its place: as much work as repeating it.
            self.repeated += size.bytes;
            if self.repeated > MAX_REPEATED_BYTES {
                return Err(self.too_much("its aliases repeat too many bytes", MAX_REPEATED_BYTES));
            }
            self.anchors.insert(anchor, (value.clone(), size));
        }
        let line = self.line;
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.root = Some(value),
            Some(CollectionKind::List(items)) => items.push(value),
            Some(CollectionKind::Map { pairs, keys, key }) => match key.take() {
                Some(key) => pairs.push((key, value)),
                None => {
                    let name = value.key();
                    if !keys.insert(name.clone()) {
                        return Err(YamlError::Duplicate { key: name, line });
                    }
                    *key = Some(value);
                }
            },
        }
        Ok(())
    }
}

impl Yaml {
    fn null() -> Self {
        Self::Scalar {
            value: Value::Null,
            source_text: String::new(),
        }
    }

    /// As JSON, which is what the rest of the host speaks: keys become text.
    pub(super) fn into_json(self) -> Value {
        match self {
            Self::Scalar { value, .. } => value,
            Self::List(items) => items.into_iter().map(Self::into_json).collect(),
            Self::Map(pairs) => {
                let pairs = pairs.into_iter();
                let pairs = pairs.map(|(key, value)| (key.key(), value.into_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// The text of a key.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Scalar {
                value: Value::String(text),
                ..
            } => text.clone(),
            other => other.clone().into_json().to_string(),
        }
    }
}

/// A scalar by the core schema, and by that of YAML 1.1 where files use it: binary numbers.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let is_text = match tag.and_then(Tag::core_suffix) {
        Some(suffix) => suffix == "str",
        None => style != ScalarStyle::Plain,
    };
    if is_text {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match number(text) {
            Some(number) => Value::Number(number),
            None => Value::String(text.to_owned()),
        },
    }
}

fn number(text: &str) -> Option<Number> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = digits.strip_prefix(prefix) {
            let fits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            let number = i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()?;
            return fits.then(|| number.into());
        }
    }
    let begins = digits.starts_with(|c: char| c.is_ascii_digit())
        || digits
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let shaped = digits
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    // `007` is a name, not a number.
    let padded = digits.len() > 1 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !begins || !shaped || (padded && digits.starts_with('0')) {
        return None;
    }
    let signed = format!("{sign}{digits}");
    if let Ok(number) = signed.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = signed.parse::<u64>() {
        return Some(number.into());
    }
    Number::from_f64(signed.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(source: &str) -> Value {
        read(source).unwrap().into_json()
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("true", json!(true)),
            ("FALSE", json!(false)),
            ("yes", json!("yes")),
            ("1", json!(1)),
            ("-7", json!(-7)),
            ("+7", json!(7)),
            ("007", json!("007")),
            ("0", json!(0)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("0b101", json!(5)),
            ("1.10", json!(1.1)),
            (".5", json!(0.5)),
            ("1e3", json!(1000.0)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615u64)),
            ("1.2.3", json!("1.2.3")),
            ("2024-01-01", json!("2024-01-01")),
            (".inf", json!(".inf")),
            ("e5", json!("e5")),
            ("'1'", json!("1")),
            ("\"true\"", json!("true")),
            ("!!str 1", json!("1")),
            ("!mine 1", json!(1)),
        ] {
            assert_eq!(value(&format!("a: {text}"))["a"], expected, "{text}");
        }
    }

    #[test]
    fn a_scalar_keeps_how_it_was_written() {
        let Yaml::Map(pairs) = read("version: 1.10").unwrap() else {
            panic!("no map");
        };
        let expected = Yaml::Scalar {
            value: json!(1.1),
            source_text: "1.10".to_owned(),
        };
        assert_eq!(pairs[0].1, expected);
    }

    #[test]
    fn aliases_repeat_what_they_name() {
        assert_eq!(
            value("a: &x [1, {b: 2}]\nc: *x\nd: *x"),
            json!({"a": [1, {"b": 2}], "c": [1, {"b": 2}], "d": [1, {"b": 2}]})
        );
        let error = |source: &str| read(source).unwrap_err();
        assert!(matches!(error("a: &x [*x]"), YamlError::Recursive { .. }));
        assert!(matches!(error("a: *y"), YamlError::Syntax { .. }));
    }

    #[test]
    fn what_is_said_twice_is_an_error_with_its_line() {
        let error = read("a: 1\nb: 2\na: 3").unwrap_err();
        assert_eq!(error.line(), 3);
        assert_eq!(error.to_string(), "the key `a` stands there twice");
        assert!(read("a: 1\n...\n---\nb: 1").is_err());
    }

    /// What a hostile file is told. The cost of each is that of the text up to the limit, because
    /// reading ends there.
    fn refused(source: &str) -> String {
        match read(source) {
            Err(YamlError::TooMuch { what, .. }) => what.to_owned(),
            Err(other) => other.to_string(),
            Ok(_) => "read".to_owned(),
        }
    }

    #[test]
    fn depth_is_bounded_in_every_form() {
        let block_map: String = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        let block_list: String = (0..200).map(|n| format!("{}-\n", " ".repeat(n))).collect();
        for source in [
            "[".repeat(50_000),
            "{a: ".repeat(15_000),
            "a: ".to_owned() + &"[".repeat(50_000) + &"]".repeat(10_000),
            "- ".repeat(30_000),
            "? ".repeat(30_000),
            "[{".repeat(20_000),
            block_map,
            block_list,
        ] {
            assert_eq!(
                refused(&source),
                "it is too deeply nested",
                "{}",
                &source[..20]
            );
        }
        let fine = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        assert!(read(&fine).is_ok());
    }

    #[test]
    fn aliases_cannot_make_much_of_little() {
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (one, other) in "abcdefgh".chars().zip("bcdefghi".chars()) {
            bomb.push_str(&format!(
                "{other}: &{other} [{}]\n",
                vec![format!("*{one}"); 9].join(", ")
            ));
        }
        assert_eq!(refused(&bomb), "it has too many values");
        let large = format!(
            "a: &a {}\nb: [{}]",
            "x".repeat(30_000),
            vec!["*a"; 100].join(", ")
        );
        assert_eq!(refused(&large), "its aliases repeat too many bytes");
        let anchors = "&a ".repeat(20_000);
        assert_ne!(refused(&anchors), "read");
    }

    #[test]
    fn size_and_number_are_bounded() {
        assert_eq!(refused(&"x".repeat(MAX_BYTES + 1)), "it has too many bytes");
        let keys: String = (0..6_000).map(|n| format!("k{n}:\n")).collect();
        assert_eq!(refused(&keys), "it has too many values");
        assert_eq!(
            refused(&format!("[{}]", "1,".repeat(20_000))),
            "it has too many values"
        );
        let keys: String = (0..4_000).map(|n| format!("k{n}: v\n")).collect();
        assert_eq!(value(&keys).as_object().map(Map::len), Some(4_000));
        let long = format!("a: {}", "x".repeat(60_000));
        assert_eq!(value(&long)["a"].as_str().map(str::len), Some(60_000));
        let folded = format!("a: >\n{}", "  x\n".repeat(10_000));
        assert_eq!(value(&folded)["a"].as_str().map(str::len), Some(20_000));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_fail(source in "[-a: \\n\\[\\]{}&*!|>'\"#,?%@~1]{0,120}") {
            let _ = read(&source);
        }
    }
}
