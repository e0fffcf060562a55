//! What is wrong with a body, in JSON's words: the library that reads it speaks of Rust's types.

use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Reads a body.
///
/// # Errors
/// 400 for what is no JSON, 422 for what is not as it should be, with the place.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let (place, error) = match serde_path_to_error::deserialize(&mut json) {
        Ok(read) => match json.end() {
            Ok(()) => return Ok(read),
            Err(error) => (String::new(), error),
        },
        Err(error) => (error.path().to_string(), error.into_inner()),
    };
    if !error.is_data() {
        return Err(Problem::malformed(format!("the body is no JSON: {error}")));
    }
    let place = match place.as_str() {
        "" | "." | "?" => String::new(),
        place => format!("`{place}`: "),
    };
    let why = in_words_of_json(&error.to_string());
    Err(Problem::invalid(format!(
        "the body is not as it should be: {place}{why}"
    )))
}

/// What is found, and what is expected, as serde says it, with what it is in JSON.
const FOUND: [(&str, &str); 2] = [
    ("invalid type: map, ", "invalid type: an object, "),
    ("invalid type: sequence, ", "invalid type: a list, "),
];
const EXPECTED: [(&str, &str); 2] = [("a map", "an object"), ("a sequence", "a list")];
/// The same where the name of a type of ours follows.
const NAMED: [(&str, &str); 2] = [
    ("internally tagged enum ", "an object with its `kind`"),
    ("struct ", "an object"),
];

fn in_words_of_json(text: &str) -> String {
    let found = FOUND
        .iter()
        .find_map(|(serde, json)| Some(format!("{json}{}", text.strip_prefix(serde)?)));
    let text = found.unwrap_or_else(|| text.to_owned());
    let Some((before, expected)) = text.rsplit_once("expected ") else {
        return text;
    };
    let plain = EXPECTED
        .iter()
        .find_map(|(serde, json)| Some(format!("{json}{}", expected.strip_prefix(serde)?)));
    let named = || {
        NAMED.iter().find_map(|(serde, json)| {
            let name = expected.strip_prefix(serde)?;
            let rest = name.find(|c: char| !c.is_alphanumeric());
            Some(format!("{json}{}", name.get(rest?..)?))
        })
    };
    match plain.or_else(named) {
        Some(expected) => format!("{before}expected {expected}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_ours_are_what_they_are_in_json() {
        for (serde, json) in [
            (
                "invalid type: string \"once\", expected internally tagged enum Scope at line 1 column 34",
                "invalid type: string \"once\", expected an object with its `kind` at line 1 column 34",
            ),
            (
                "invalid type: sequence, expected struct NewTurn at line 1 column 2",
                "invalid type: a list, expected an object at line 1 column 2",
            ),
            (
                "invalid type: map, expected a string at line 2 column 1",
                "invalid type: an object, expected a string at line 2 column 1",
            ),
            (
                "invalid type: string \"a map\", expected a sequence at line 1 column 9",
                "invalid type: string \"a map\", expected a list at line 1 column 9",
            ),
            (
                "unknown variant `perhaps`, expected `allow` or `deny` at line 1 column 21",
                "unknown variant `perhaps`, expected `allow` or `deny` at line 1 column 21",
            ),
            ("missing field `text`", "missing field `text`"),
        ] {
            assert_eq!(in_words_of_json(serde), json);
        }
    }
}
