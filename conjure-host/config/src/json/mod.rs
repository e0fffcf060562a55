//! JSON that somebody sent, read with the place of what is wrong in it, and in JSON's words: the
//! library that reads it speaks of Rust's types, and takes a list for an object, by position.

mod by_name;
mod terms;

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use by_name::ByName;
use terms::in_json_terms;

/// What is wrong in JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", quoted(.path))]
pub struct UnfitJson {
    /// Where, such as `backend[0].skills`; empty for the whole.
    pub path: String,
    /// Why, in JSON's words.
    pub why: String,
}

/// Why text is not the JSON that it should be.
#[derive(Debug, thiserror::Error)]
pub enum ReadJsonError {
    /// The text is no JSON.
    #[error("it is no JSON: {source}")]
    Malformed {
        /// Why, with line and column.
        source: serde_json::Error,
    },
    /// The text is JSON, and something in it is not as it should be.
    #[error(transparent)]
    Unfit(#[from] UnfitJson),
}

/// Reads text whose whole is an object.
///
/// # Errors
/// [`ReadJsonError`] says whether it is no JSON, or what in it is wrong.
pub fn read_object<T: DeserializeOwned>(text: &[u8]) -> Result<T, ReadJsonError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let (place, error) = match serde_path_to_error::deserialize(ByName(&mut json)) {
        Ok(OnlyObject(read)) => match json.end() {
            Ok(()) => return Ok(read),
            Err(error) => (String::new(), error),
        },
        Err(error) => (error.path().to_string(), error.into_inner()),
    };
    match error.is_data() {
        true => Err(UnfitJson::of(place, &error).into()),
        false => Err(ReadJsonError::Malformed { source: error }),
    }
}

/// Reads a value that was JSON.
///
/// # Errors
/// [`UnfitJson`] says what is wrong in it, and where.
pub fn read_value<T: DeserializeOwned>(value: &Value) -> Result<T, UnfitJson> {
    let read = serde_path_to_error::deserialize(ByName(value));
    read.map_err(|error| UnfitJson::of(error.path().to_string(), error.inner()))
}

/// Reads an enum that is an object with its `kind`: what serde derives for one takes a list too.
///
/// # Errors
/// The reader's.
pub fn object_with_kind<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    from.deserialize_map(ObjectReader::new("an object with its `kind`"))
}

impl UnfitJson {
    fn of(place: String, error: &serde_json::Error) -> Self {
        let place = match place.as_str() {
            "." | "?" => String::new(),
            _ => place,
        };
        let why = in_json_terms(&error.to_string());
        Self { path: place, why }
    }

    /// Moves the place below `outer`, the place of something larger that this was read in.
    #[must_use]
    pub fn below(mut self, outer: &str) -> Self {
        let dot = match self.path.as_str() {
            "" => "",
            inner if inner.starts_with('[') => "",
            _ => ".",
        };
        self.path = format!("{outer}{dot}{}", self.path);
        self
    }

    /// The member of the whole that the place is in: `tools` of `tools.backend[0]`. Empty where the
    /// whole is wrong.
    pub fn member(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or_default()
    }
}

fn quoted(place: &str) -> String {
    match place {
        "" => String::new(),
        place => format!("`{place}`: "),
    }
}

/// What has to be an object as a whole.
struct OnlyObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OnlyObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = from.deserialize_map(ObjectReader::new("an object"));
        read.map(Self)
    }
}

/// Reads an object as something, and nothing else as that.
struct ObjectReader<T> {
    expected: &'static str,
    read: PhantomData<T>,
}

impl<T> ObjectReader<T> {
    fn new(expected: &'static str) -> Self {
        Self {
            expected,
            read: PhantomData,
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectReader<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Garden {
        name: String,
        bed: Option<Plot>,
        #[serde(default)]
        beds: Vec<Plot>,
        #[serde(default, deserialize_with = "object_with_kind")]
        gate: Gate,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Plot {
        rows: u8,
        soil: Soil,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Soil {
        Clay,
        Sand,
    }

    #[derive(Debug, PartialEq, Default, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Gate {
        #[default]
        Shut,
        Open {
            wide: bool,
        },
    }

    fn refused(text: &str) -> String {
        let read = read_object::<Garden>(text.as_bytes());
        read.unwrap_err().to_string()
    }

    #[test]
    fn an_object_is_read_by_the_names_of_its_members() {
        let garden = json!({
            "name": "north", "bed": { "rows": 2, "soil": "clay" },
            "beds": [{ "soil": { "sand": null }, "rows": 3 }],
            "gate": { "wide": true, "kind": "open" },
        });
        let read = Garden {
            name: "north".to_owned(),
            bed: Some(Plot {
                rows: 2,
                soil: Soil::Clay,
            }),
            beds: vec![Plot {
                rows: 3,
                soil: Soil::Sand,
            }],
            gate: Gate::Open { wide: true },
        };
        assert_eq!(
            read_object::<Garden>(garden.to_string().as_bytes()).unwrap(),
            read
        );
        assert_eq!(read_value::<Garden>(&garden), Ok(read));
    }

    #[test]
    fn a_list_is_no_object_wherever_it_stands() {
        for (text, said) in [
            (
                r#"["north", null, [], {}]"#,
                "invalid type: a list, expected an object",
            ),
            (
                r#"{"name": "north", "bed": [2, "clay"]}"#,
                "`bed`: invalid type: a list, expected an object",
            ),
            (
                r#"{"name": "north", "beds": [{"rows": 1, "soil": "clay"}, [2, "clay"]]}"#,
                "`beds[1]`: invalid type: a list, expected an object",
            ),
            (
                r#"{"name": "north", "gate": ["open", true]}"#,
                "`gate`: invalid type: a list, expected an object with its `kind`",
            ),
        ] {
            let refused = refused(text);
            assert!(refused.starts_with(said), "{refused}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_types_of_ours() {
        let bed = |rows: &str, soil: &str| {
            format!(r#"{{"name":"a","beds":[{{"rows":{rows},"soil":{soil}}}]}}"#)
        };
        for (text, said) in [
            (
                bed("-1", "\"clay\""),
                "`beds[0].rows`: invalid value: integer `-1`, expected a whole number from 0 to 255",
            ),
            (
                bed("1.5", "\"clay\""),
                "`beds[0].rows`: invalid type: number `1.5`, expected a whole number from 0 to 255",
            ),
            (
                bed("1", "5"),
                "`beds[0].soil`: invalid type: integer `5`, expected one of `clay`, `sand`",
            ),
            (
                bed("1", "[\"clay\"]"),
                "`beds[0].soil`: invalid type: a list, expected one of `clay`, `sand`",
            ),
            (
                "{\"name\": 5}".to_owned(),
                "`name`: invalid type: integer `5`, expected a string",
            ),
            ("{}".to_owned(), "missing field `name`"),
            ("{\"name\": ".to_owned(), "it is no JSON: "),
        ] {
            let refused = refused(&text);
            assert!(refused.starts_with(said), "{refused}");
        }
        let unknown = refused(&bed("1", "\"mud\""));
        assert!(
            unknown.contains("unknown variant `mud`, expected `clay` or `sand`"),
            "{unknown}"
        );
    }

    #[test]
    fn a_place_is_in_a_member_of_what_is_around_it() {
        let at = |place: &str| UnfitJson {
            path: place.to_owned(),
            why: "it is none".to_owned(),
        };
        for (place, whole) in [
            ("", "tools"),
            ("[0]", "tools[0]"),
            ("backend[0].kind", "tools.backend[0].kind"),
        ] {
            let below = at(place).below("tools");
            assert_eq!((below.path.as_str(), below.member()), (whole, "tools"));
        }
        assert_eq!(at("").member(), "");
        assert_eq!(at("a[1].b").to_string(), "`a[1].b`: it is none");
        assert_eq!(at("").to_string(), "it is none");
    }
}
