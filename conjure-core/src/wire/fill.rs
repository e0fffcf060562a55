//! JSON objects filled in where they stand.
//!
//! A derived reader hands each object up by value, and so moves it once for each object and list
//! that it is inside of; the text of an event is inside five of them. Here the place of a value is
//! made first, and its fields are read into it. Knows no provider.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};

/// An object whose fields are read one by one. One that comes twice counts as it came last.
pub(super) trait Fields<'de>: Default {
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
pub(super) fn into<'de, A: MapAccess<'de>>(
    place: &mut impl Fill<'de>,
    map: &mut A,
) -> Result<(), A::Error> {
    map.next_value_seed(In(place))
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

/// A place to be filled.
pub(super) struct In<'p, T>(pub(super) &'p mut T);

impl<'de, T: Fill<'de>> DeserializeSeed<'de> for In<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.0.fill(from)
    }
}

impl<'de, T: Fields<'de>> Fill<'de> for T {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(Object(self))
    }
}

struct Object<'p, T>(&'p mut T);

impl<'de, T: Fields<'de>> Visitor<'de> for Object<'_, T> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            self.0.field(&name, &mut map)?;
        }
        Ok(())
    }
}

/// The name of a field.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

/// `null` is none.
impl<'de, T: Fill<'de>> Fill<'de> for Option<T> {
    fn fill<D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_option(Maybe(self))
    }
}

struct Maybe<'p, T>(&'p mut Option<T>);

impl<'de, T: Fill<'de>> Visitor<'de> for Maybe<'_, T> {
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
