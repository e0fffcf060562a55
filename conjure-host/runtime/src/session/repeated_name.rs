//! Names that stand twice in one object of JSON.
//!
//! Readers take the one or the other of the two values, or none: an answer with such an object would be
//! judged by one value and read as the other.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What is wrong with a JSON text in which an object has a name twice, at whatever depth.
pub(super) fn repeated_name(json: &str) -> Option<String> {
    let read: Result<DistinctNames, _> = serde_json::from_str(json);
    read.err().map(|error| error.to_string())
}

/// Any JSON value whose objects have each name once. Nothing of it is kept.
struct DistinctNames;

impl<'de> Deserialize<'de> for DistinctNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = DistinctNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_i64<E>(self, _: i64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_u64<E>(self, _: u64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_f64<E>(self, _: f64) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_str<E>(self, _: &str) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_unit<E>(self) -> Result<DistinctNames, E> {
        Ok(DistinctNames)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<DistinctNames, A::Error> {
        while values.next_element::<DistinctNames>()?.is_some() {}
        Ok(DistinctNames)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<DistinctNames, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            fields.next_value::<DistinctNames>()?;
            if let Some(name) = names.replace(name) {
                let wrong = format!("`{name}` stands twice in one object");
                return Err(A::Error::custom(wrong));
            }
        }
        Ok(DistinctNames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_stands_twice_is_found_at_any_depth_and_however_it_is_written() {
        for json in [
            "{\"n\": \"x\", \"n\": 3}",
            "[1, {\"a\": {\"n\": null, \"b\": 1.5, \"\\u006e\": true}}]",
        ] {
            let wrong = repeated_name(json).unwrap();
            assert!(wrong.contains("`n` stands twice"), "{json}: {wrong}");
        }
        for json in ["{\"n\": {\"n\": [{\"n\": 1}, {\"n\": -2}]}}", "\"n\"", "[]"] {
            assert_eq!(repeated_name(json), None, "{json}");
        }
    }
}
