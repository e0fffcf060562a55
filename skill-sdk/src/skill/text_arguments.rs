//! Typed arguments out of texts: variables of a URI template, arguments of a prompt.
//!
//! Each value is a text; a field that is a number or a flag reads it as one.

use serde::de::value::{Error as Misfit, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};

/// Reads a type out of names with texts.
pub(super) fn read<'de, A: DeserializeOwned>(
    words: impl IntoIterator<Item = (&'de str, &'de str)>,
) -> Result<A, Misfit> {
    let words = words
        .into_iter()
        .map(|(name, text)| (name, WordDeserializer(text)));
    A::deserialize(MapDeserializer::new(words))
}

#[derive(Clone, Copy)]
struct WordDeserializer<'de>(&'de str);

impl<'de> IntoDeserializer<'de, Misfit> for WordDeserializer<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parsed {
    ($($method:ident $visit:ident $ty:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            let value = self.0.trim().parse::<$ty>();
            visitor.$visit(value.map_err(|error| {
                Misfit::custom(format_args!("`{}` is no {}: {error}", self.0, stringify!($ty)))
            })?)
        })*
    };
}

impl<'de> Deserializer<'de> for WordDeserializer<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_str(self.0)
    }

    parsed! {
        deserialize_bool visit_bool bool;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let word: serde::de::value::StrDeserializer<'de, Misfit> = self.0.into_deserializer();
        word.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;
    use crate::protocol::Empty;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Color {
        Red,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Kinds {
        id: u32,
        ratio: f64,
        flag: bool,
        text: String,
        color: Color,
        maybe: Option<i8>,
        #[serde(default)]
        absent: Option<String>,
    }

    #[test]
    fn texts_become_what_the_type_says() {
        let words = [
            ("id", "7"),
            ("ratio", "0.5"),
            ("flag", "true"),
            ("text", "8"),
            ("color", "red"),
            ("maybe", "-1"),
            ("unknown", "x"),
        ];
        assert_eq!(
            read::<Kinds>(words).unwrap(),
            Kinds {
                id: 7,
                ratio: 0.5,
                flag: true,
                text: "8".into(),
                color: Color::Red,
                maybe: Some(-1),
                absent: None,
            }
        );
        assert_eq!(read::<Empty>([]).unwrap(), Empty {});
        let map: BTreeMap<String, String> = read([("a", "1")]).unwrap();
        assert_eq!(map["a"], "1");
    }

    #[test]
    fn what_does_not_fit_says_which_word() {
        let error = read::<BTreeMap<String, u8>>([("a", "300")]).unwrap_err();
        assert!(error.to_string().contains("`300` is no u8"), "{error}");
        let error = read::<Kinds>([("id", "1")]).unwrap_err();
        assert!(
            error.to_string().contains("missing field `ratio`"),
            "{error}"
        );
    }
}
