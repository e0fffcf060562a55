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
const NAMED: &str = "struct ";

fn in_words_of_json(text: &str) -> String {
    let text = instead(text, &FOUND).unwrap_or_else(|| text.to_owned());
    let Some((before, expected)) = text.rsplit_once("expected ") else {
        return text;
    };
    let named = || {
        let name = expected.strip_prefix(NAMED)?;
        let rest = name.find(|c: char| !c.is_alphanumeric())?;
        Some(format!("an object{}", name.get(rest..)?))
    };
    match instead(expected, &EXPECTED).or_else(named) {
        Some(expected) => format!("{before}expected {expected}"),
        None => text,
    }
}

/// A text with its beginning replaced, where it is one of these.
fn instead(text: &str, all: &[(&str, &str)]) -> Option<String> {
    all.iter()
        .find_map(|(serde, json)| Some(format!("{json}{}", text.strip_prefix(serde)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_ours_are_what_they_are_in_json() {
        for (serde, json) in [
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
