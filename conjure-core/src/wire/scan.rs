//! JSON of a stream read in place: strings that borrow, lists that rarely allocate.
//!
//! An event of a stream is small, and there are many. Its text is borrowed from the event's bytes
//! wherever nothing is escaped, and a field of another type than expected is kept instead of
//! failing the event. Knows no provider.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A field that should be a string.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Loose<'a> {
    /// Missing, or `null`.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// Anything else; boxed, because it is rare and the events are many.
    Other(Box<Value>),
}

impl Loose<'_> {
    /// The string, if it is one.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Other(_) => None,
        }
    }

    /// The string, or an empty one.
    pub(super) fn str(&self) -> &str {
        self.as_str().unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Loose::Absent)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(list)).map(other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(map)).map(other)
    }
}

fn other<'a>(value: Value) -> Loose<'a> {
    Loose::Other(Box::new(value))
}

/// A list whose first item needs no allocation. `null` is an empty list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            rest: Vec::new(),
        }
    }
}

impl<T> Few<T> {
    /// The items, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Few::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut few = Few {
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
            read::<Loose<'_>>(r#""a""#),
            Loose::Text(Cow::Borrowed("a"))
        ));
        assert_eq!(read::<Loose<'_>>(r#""\n""#).as_str(), Some("\n"));
        assert_eq!(read::<Loose<'_>>("null"), Loose::Absent);
        for other in ["1", "-1", "1.5", "true", "[1]", r#"{"a":1}"#] {
            let value = serde_json::from_str(other).unwrap();
            assert_eq!(read::<Loose<'_>>(other), super::other(value));
        }
    }

    #[test]
    fn lists_and_counts_take_what_servers_send() {
        let list: Few<Count> = read("[1, 2.0, null, -3, \"4\"]");
        assert_eq!(
            list.iter().map(|c| c.0).collect::<Vec<_>>(),
            [1, 2, 0, 0, 4]
        );
        assert_eq!(read::<Few<Count>>("null").iter().count(), 0);
        assert_eq!(
            json!(read::<Few<Count>>("[7]").into_iter().next().unwrap().0),
            json!(7)
        );
    }
}
