//! JSON of a stream read in place: strings that borrow, lists that rarely allocate.
//!
//! An event of a stream is small, and there are many. Its text is borrowed from the event's bytes
//! wherever nothing is escaped, and a field of another type than expected is kept instead of
//! failing the event. Knows no provider.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::fill::{Fill, FillSeed};

/// A field that should be a string.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum LooseString<'a> {
    /// Missing, or `null`.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// Anything else; boxed, because it is rare and the events are many.
    Other(Box<Value>),
}

impl LooseString<'_> {
    /// The string, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Other(_) => None,
        }
    }

    /// The string, taken out, if it is one.
    pub(super) fn take(&mut self) -> Option<String> {
        match self {
            Self::Text(text) => Some(std::mem::take(text).into_owned()),
            Self::Absent | Self::Other(_) => None,
        }
    }

    /// The string, or an empty one.
    pub(super) fn str(&self) -> &str {
        self.as_str().unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LooseString<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        if raw == "null" {
            return Ok(Self::Absent);
        }
        let inner = raw
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let Some(text) = inner else {
            return serde_json::from_str(raw)
                .map(other)
                .map_err(D::Error::custom);
        };
        if memchr::memchr(b'\\', text.as_bytes()).is_none() {
            return Ok(Self::Text(Cow::Borrowed(text)));
        }
        match unescaped(text) {
            Some(text) => Ok(Self::Text(Cow::Owned(text))),
            // Half of a character, which no text can hold.
            None => serde_json::from_str(raw)
                .map(|text| Self::Text(Cow::Owned(text)))
                .map_err(D::Error::custom),
        }
    }
}

/// The text of a string with escapes, in one allocation: a parser's own buffer grows step by step,
/// and most texts of streams have a line break in them. None for what is left to the parser.
fn unescaped(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at(at);
        text.push_str(plain);
        let code = *escape.as_bytes().get(1)?;
        let (character, length) = match code {
            b'n' => ('\n', 2),
            b't' => ('\t', 2),
            b'r' => ('\r', 2),
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'"' | b'\\' | b'/' => (char::from(code), 2),
            b'u' => unicode(escape)?,
            _ => return None,
        };
        text.push(character);
        rest = escape.get(length..)?;
    }
    text.push_str(rest);
    Some(text)
}

/// The character of `\u` escapes, one or a pair of them, and how long they are.
fn unicode(escape: &str) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = escape.get(at..at + 6)?.strip_prefix("\\u")?;
        let all = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| all)
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = unit(6).filter(|_| first < 0xDC00)?;
    let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
    let pair = 0x1_0000 + ((first - 0xD800) << 10) + low;
    char::from_u32(pair).map(|character| (character, 12))
}

fn other<'a>(value: Value) -> LooseString<'a> {
    LooseString::Other(Box::new(value))
}

/// A list whose first item needs no allocation. `null` is an empty list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SmallList<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Default for SmallList<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: Vec::new(),
        }
    }
}

impl<T> SmallList<T> {
    /// The items, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    /// The items, to be taken apart.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.first.iter_mut().chain(&mut self.rest)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SmallList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SmallListVisitor(PhantomData))
    }
}

impl<'de, T: Fill<'de>> Fill<'de> for SmallList<T> {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(SmallListFiller(self))
    }
}

/// A list whose items are filled in where they stand.
struct SmallListFiller<'p, T>(&'p mut SmallList<T>);

impl<'de, T: Fill<'de>> Visitor<'de> for SmallListFiller<'_, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        *self.0 = SmallList::default();
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.rest.clear();
        let first = self.0.first.insert(T::default());
        if list.next_element_seed(FillSeed(first))?.is_none() {
            self.0.first = None;
            return Ok(());
        }
        let mut next = T::default();
        while list.next_element_seed(FillSeed(&mut next))?.is_some() {
            self.0.rest.push(std::mem::take(&mut next));
        }
        Ok(())
    }
}

struct SmallListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SmallListVisitor<T> {
    type Value = SmallList<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(SmallList::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut few = SmallList {
            first: list.next_element()?,
            rest: Vec::new(),
        };
        while let Some(item) = list.next_element()? {
            few.rest.push(item);
        }
        Ok(few)
    }
}

/// A count of tokens or a place in a list; `null`, negative numbers and other things are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(value).unwrap_or_default()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
        // The format of a whole float is that of the integer.
        Ok(Count(format!("{value:.0}").parse().unwrap_or_default()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Count, E> {
        Ok(Count(value.parse().unwrap_or_default()))
    }

    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read<'a, T: Deserialize<'a>>(text: &'a str) -> T {
        T::deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    #[test]
    fn a_plain_string_borrows_and_anything_else_is_kept() {
        assert!(matches!(
            read::<LooseString<'_>>(r#""a""#),
            LooseString::Text(Cow::Borrowed("a"))
        ));
        assert_eq!(read::<LooseString<'_>>(r#""\n""#).as_str(), Some("\n"));
        assert_eq!(read::<LooseString<'_>>("null"), LooseString::Absent);
        for other in ["1", "-1", "1.5", "true", "[1]", r#"{"a":1}"#] {
            let value = serde_json::from_str(other).unwrap();
            assert_eq!(read::<LooseString<'_>>(other), super::other(value));
        }
    }

    #[test]
    fn a_text_with_escapes_is_what_a_parser_makes_of_it() {
        for text in [
            r#""a\nb\t\r\b\f\"\\\/c""#,
            r#""\u00fc\u4F60\ud83d\ude00!""#,
            r#""\u0000""#,
            r#""\ud800""#,
            r#""\ud83dx""#,
            r#""\ud83d\u0041""#,
            r#""\udc00\ud800""#,
            r#""\u+123""#,
            r#""\x""#,
            r#""\\""#,
            r#""ü\u00fcé""#,
        ] {
            let parser = serde_json::from_str::<String>(text).ok();
            let own = serde_json::from_str::<LooseString<'_>>(text).ok();
            assert_eq!(own.map(|own| own.str().to_owned()), parser, "{text}");
        }
    }

    #[test]
    fn lists_and_counts_take_what_servers_send() {
        let list: SmallList<Count> = read("[1, 2.0, null, -3, \"4\"]");
        assert_eq!(
            list.iter().map(|c| c.0).collect::<Vec<_>>(),
            [1, 2, 0, 0, 4]
        );
        assert_eq!(read::<SmallList<Count>>("null").iter().count(), 0);
        assert_eq!(
            json!(read::<SmallList<Count>>("[7]").iter().next().unwrap().0),
            json!(7)
        );
    }
}
