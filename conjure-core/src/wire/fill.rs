//! JSON objects filled in where they stand.
//!
//! A derived reader hands each object up by value, and so moves it once for each object and list
//! that it is inside of; the text of an event is inside five of them. Here the place of a value is
//! made first, and its fields are read into it. Knows no provider.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// An object whose fields are read one by one. One that comes twice counts as it came last.
pub(super) trait FieldReader<'de>: Default {
    /// Reads the value of this field, or skips it with [`skip`].
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// A value that is read into its place.
pub(super) trait Fill<'de>: Default {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error>;
}

/// Reads a whole text into a place.
pub(super) fn fill<'de>(place: &mut impl Fill<'de>, text: &'de str) -> serde_json::Result<()> {
    let mut from = serde_json::Deserializer::from_str(text);
    place.fill(&mut from)?;
    from.end()
}

/// Reads bytes into a place, which may be cut anywhere, even inside of a character.
pub(super) fn fill_bytes<'de>(
    place: &mut impl Fill<'de>,
    bytes: &'de [u8],
) -> serde_json::Result<()> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    place.fill(&mut from)?;
    from.end()
}

/// Reads a field that holds an object, or a list of them, into its place.
pub(super) fn fill_field<'de, A: MapAccess<'de>>(
    place: &mut impl Fill<'de>,
    map: &mut A,
) -> Result<(), A::Error> {
    map.next_value_seed(FillSeed(place))
}

/// Reads a field that holds something small.
pub(super) fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    place: &mut T,
    map: &mut A,
) -> Result<(), A::Error> {
    *place = map.next_value()?;
    Ok(())
}

/// Goes past a field that is of no use.
pub(super) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

/// Goes past a field like [`skip`], for a list of flat objects that comes in each event: [`skip`]
/// remembers what is nested in the skipped value in a list, which allocates.
pub(super) fn skip_rows<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<Skipped<Skipped<IgnoredAny>>>().map(|_| ())
}

/// Any value; what it holds is read as `T`.
struct Skipped<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Skipped<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Skipped<T> {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<T>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, T>()?.is_some() {}
        Ok(self)
    }
}

/// Fills a value where it stands.
pub(super) struct FillSeed<'p, T>(pub(super) &'p mut T);

impl<'de, T: Fill<'de>> DeserializeSeed<'de> for FillSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.fill(from)
    }
}

impl<'de, T: FieldReader<'de>> Fill<'de> for T {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(ObjectVisitor(self))
    }
}

struct ObjectVisitor<'p, T>(&'p mut T);

impl<'de, T: FieldReader<'de>> Visitor<'de> for ObjectVisitor<'_, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(FieldName(name)) = map.next_key()? {
            self.0.field(&name, &mut map)?;
        }
        Ok(())
    }
}

/// The name of a field.
struct FieldName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for FieldName<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = FieldName<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<FieldName<'de>, E> {
        Ok(FieldName(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<FieldName<'de>, E> {
        Ok(FieldName(Cow::Owned(name.to_owned())))
    }
}

/// `null` is none.
impl<'de, T: Fill<'de>> Fill<'de> for Option<T> {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(OptionVisitor(self))
    }
}

struct OptionVisitor<'p, T>(&'p mut Option<T>);

impl<'de, T: Fill<'de>> Visitor<'de> for OptionVisitor<'_, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        *self.0 = None;
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.insert(T::default()).fill(from)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::wire::scan::{Count, LooseString, SmallList};

    #[derive(Default)]
    struct Outer<'a> {
        name: LooseString<'a>,
        inner: Option<Inner>,
        list: SmallList<Inner>,
    }

    #[derive(Default, Debug, PartialEq)]
    struct Inner(Count);

    impl<'de> FieldReader<'de> for Outer<'de> {
        fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
            match name {
                "name" => set(&mut self.name, map),
                "inner" => fill_field(&mut self.inner, map),
                "list" => fill_field(&mut self.list, map),
                "rows" => skip_rows(map),
                _ => skip(map),
            }
        }
    }

    impl<'de> FieldReader<'de> for Inner {
        fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
            match name {
                "n" => set(&mut self.0, map),
                _ => skip(map),
            }
        }
    }

    fn counts(text: &str) -> Option<(String, Option<u64>, Vec<u64>)> {
        let mut outer = Outer::default();
        fill(&mut outer, text).ok()?;
        Some((
            outer.name.str().to_owned(),
            outer.inner.map(|inner| inner.0.0),
            outer.list.iter().map(|inner| inner.0.0).collect(),
        ))
    }

    #[test]
    fn what_is_known_is_read_and_anything_else_is_gone_past() {
        let text = r#" {"x": [{"y": [[1]]}], "n\u0061me": "a", "inner": {"n": 1, "z": {}},
            "list": [{"n": 2}, {"m": 9}, {"n": 3}], "rows": [{"a": 1.5, "b": [true, [{}]]}, "c"]} "#;
        assert_eq!(counts(text), Some(("a".to_owned(), Some(1), vec![2, 0, 3])));
        let nulls = r#"{"name": null, "inner": null, "list": null, "rows": null}"#;
        assert_eq!(counts(nulls), Some((String::new(), None, vec![])));
        assert_eq!(counts("{}"), counts(nulls));
        for rows in ["[]", "{}", "-1", "true", r#""x""#, "[[[[]]]]"] {
            let text = format!(r#"{{"rows": {rows}, "inner": {{"n": 7}}}}"#);
            assert_eq!(counts(&text).unwrap().1, Some(7), "{text}");
        }
        // A second time counts, and leaves nothing of the first.
        let twice =
            r#"{"list": [{"n": 1}, {"n": 2}], "list": [{}], "inner": {"n": 1}, "inner": {}}"#;
        assert_eq!(counts(twice), Some((String::new(), Some(0), vec![0])));
    }

    #[test]
    fn what_a_parser_refuses_is_refused() {
        for text in [
            "",
            "[]",
            "7",
            "null",
            r#"{"name": "a""#,
            r#"{"name": "a"} x"#,
            r#"{"name": "a",}"#,
            r#"{"inner": 7}"#,
            r#"{"inner": [1]}"#,
            r#"{"list": {}}"#,
            r#"{"list": [7]}"#,
            r#"{"rows": [}"#,
            r#"{"x": [1,]}"#,
        ] {
            assert_eq!(counts(text), None, "{text}");
        }
        // Bytes may end anywhere; that is an end and no other mistake.
        let whole = r#"{"name": "äé", "list": [{"n": 2}]}"#.as_bytes();
        for at in 0..whole.len() {
            let error = fill_bytes(&mut Outer::default(), &whole[..at]).unwrap_err();
            let value = serde_json::from_slice::<Value>(&whole[..at]).unwrap_err();
            assert_eq!(error.classify(), value.classify(), "{at}");
        }
    }
}
