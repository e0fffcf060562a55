//! What serde says is wrong, with the types of Rust as what they are in JSON.

/// What is found.
const FOUND_TYPES: [(&str, &str); 3] = [
    ("invalid type: map, ", "invalid type: an object, "),
    ("invalid type: sequence, ", "invalid type: a list, "),
    ("invalid type: floating point ", "invalid type: number "),
];
/// What is expected, where more may follow.
const EXPECTED_PREFIXES: [(&str, &str); 2] = [("a map", "an object"), ("a sequence", "a list")];
/// What stands in front of the name of a type of ours that is expected.
const STRUCT_PREFIX: &str = "struct ";
/// What is expected, as a whole.
const EXPECTED_TYPES: [(&str, &str); 11] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number of 0 or more"),
    ("usize", "a whole number of 0 or more"),
    ("i32", "a whole number from -2147483648 to 2147483647"),
    ("i64", "a whole number"),
    ("isize", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("path string", "a path"),
];
/// What stands in front of the position, which comes behind all else.
const POSITION_PREFIX: &str = " at line ";

pub(super) fn in_json_terms(text: &str) -> String {
    let text = replace_prefix(text, &FOUND_TYPES).unwrap_or_else(|| text.to_owned());
    let Some((before, expected)) = text.rsplit_once("expected ") else {
        return text;
    };
    let whole = || {
        let (what, position) = match expected.find(POSITION_PREFIX) {
            Some(at) => expected.split_at(at),
            None => (expected, ""),
        };
        let mut all = EXPECTED_TYPES.iter();
        all.find_map(|(serde, json)| (what == *serde).then(|| format!("{json}{position}")))
    };
    let named = || {
        let name = expected.strip_prefix(STRUCT_PREFIX)?;
        let rest = name.find(|c: char| !c.is_alphanumeric());
        let rest = rest.and_then(|rest| name.get(rest..)).unwrap_or_default();
        Some(format!("an object{rest}"))
    };
    let expected = replace_prefix(expected, &EXPECTED_PREFIXES)
        .or_else(whole)
        .or_else(named);
    match expected {
        Some(expected) => format!("{before}expected {expected}"),
        None => text,
    }
}

/// A text with its beginning replaced, where it is one of these.
fn replace_prefix(text: &str, all: &[(&str, &str)]) -> Option<String> {
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
                "invalid type: sequence, expected struct PolicySpec",
                "invalid type: a list, expected an object",
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
                "invalid value: integer `-1`, expected u32 at line 1 column 9",
                "invalid value: integer `-1`, expected a whole number from 0 to 4294967295 at line \
                 1 column 9",
            ),
            (
                "invalid type: floating point `1.5`, expected usize",
                "invalid type: number `1.5`, expected a whole number of 0 or more",
            ),
            (
                "unknown variant `perhaps`, expected `allow` or `deny` at line 1 column 21",
                "unknown variant `perhaps`, expected `allow` or `deny` at line 1 column 21",
            ),
            ("missing field `text`", "missing field `text`"),
        ] {
            assert_eq!(in_json_terms(serde), json);
        }
    }
}
