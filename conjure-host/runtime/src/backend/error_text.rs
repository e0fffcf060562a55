//! What is wrong with JSON, in JSON's words.
//!
//! The library that reads JSON tells which type of the program a value should have been
//! (`expected struct FileRef`), which says nothing to a model or a person. Changes nothing else.

use std::borrow::Cow;

/// Words for a type of the program, and what stands for them; what names a type is followed by it.
const TYPES: [(&str, bool, &str); 15] = [
    ("internally tagged enum ", true, "an object"),
    ("adjacently tagged enum ", true, "an object"),
    ("newtype struct ", true, "a value"),
    ("tuple struct ", true, "an array"),
    ("unit struct ", true, "null"),
    ("struct variant ", true, "an object"),
    ("struct ", true, "an object"),
    ("enum ", true, "one of its names"),
    ("a map", false, "an object"),
    ("a sequence", false, "an array"),
    ("usize", false, "a whole number that is not negative"),
    ("u64", false, "a whole number that is not negative"),
    ("u32", false, "a whole number that is not negative"),
    ("i64", false, "a whole number"),
    ("f64", false, "a number"),
];

/// The error without names of Rust types.
pub(super) fn without_rust_types(error: &str) -> Cow<'_, str> {
    const EXPECTED: &str = "expected ";
    let Some(at) = error.find(EXPECTED).map(|at| at + EXPECTED.len()) else {
        return Cow::Borrowed(error);
    };
    let (before, expected) = error.split_at_checked(at).unwrap_or((error, ""));
    let known = TYPES.iter().find_map(|(words, is_named, instead)| {
        let rest = expected.strip_prefix(words)?;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        match is_named {
            true => Some((rest.trim_start_matches(|c| is_word(c) || c == ':'), instead)),
            false => (!rest.starts_with(is_word)).then_some((rest, instead)),
        }
    });
    match known {
        Some((rest, instead)) => Cow::Owned(format!("{before}{instead}{rest}")),
        None => Cow::Borrowed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_program_are_not_named() {
        for (error, plain) in [
            (
                "invalid type: string \"a\", expected struct FileRef at line 1 column 9",
                "invalid type: string \"a\", expected an object at line 1 column 9",
            ),
            (
                "p 1.0.0: invalid length 0, expected struct variant Part::Text with 1 element",
                "p 1.0.0: invalid length 0, expected an object with 1 element",
            ),
            (
                "invalid type: map, expected u64",
                "invalid type: map, expected a whole number that is not negative",
            ),
            ("expected a sequence", "expected an array"),
            (
                "invalid type: null, expected a string",
                "invalid type: null, expected a string",
            ),
            ("missing field `command`", "missing field `command`"),
            (
                "expected u64s and structures",
                "expected u64s and structures",
            ),
        ] {
            assert_eq!(without_rust_types(error), plain);
        }
    }
}
