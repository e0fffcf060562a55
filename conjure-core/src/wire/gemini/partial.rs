//! Arguments that come piece by piece: a path into the arguments, and a value to put there.
//!
//! Paths come from a model, so what they may build is bounded: a path that goes too deep, too far
//! into a list or through a name that stands for something else in other languages is refused.

use serde_json::{Map, Value};

/// How deep a path may go.
const MAX_DEPTH: usize = 32;
/// How far into a list.
const MAX_INDEX: usize = 4_096;

#[derive(Debug, PartialEq)]
enum PathSegment {
    Field(String),
    Index(usize),
}

/// Puts what a `partialArgs` item says into the arguments; false when it cannot be done.
pub(super) fn apply(arguments: &mut Map<String, Value>, piece: &Value) -> bool {
    let path = piece.get("jsonPath").and_then(Value::as_str);
    let Some(steps) = path.and_then(path_segments) else {
        return false;
    };
    let Some(value) = value(piece) else {
        // The end of a value, or its beginning without any of it; anything else is not understood,
        // and arguments without it would be others than the model meant.
        let known = |name: &String| matches!(name.as_str(), "jsonPath" | "willContinue");
        return piece
            .as_object()
            .is_some_and(|piece| piece.keys().all(known));
    };
    let mut steps = steps.into_iter();
    let Some(PathSegment::Field(first)) = steps.next() else {
        return false;
    };
    let mut at = arguments.entry(first).or_insert(Value::Null);
    for step in steps {
        let next = match step {
            PathSegment::Field(name) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut()
                    .map(|fields| fields.entry(name).or_insert(Value::Null))
            }
            PathSegment::Index(index) => {
                if at.is_null() {
                    *at = Value::Array(Vec::new());
                }
                at.as_array_mut().and_then(|list| {
                    while list.len() <= index {
                        list.push(Value::Null);
                    }
                    list.get_mut(index)
                })
            }
        };
        let Some(next) = next else {
            return false;
        };
        at = next;
    }
    match (at, value) {
        // A text comes in several pieces.
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (at, value) => *at = value,
    }
    true
}

/// The value that a piece brings, in the type that its field says.
fn value(piece: &Value) -> Option<Value> {
    let of =
        |name: &str, fits: fn(&Value) -> bool| piece.get(name).filter(|value| fits(value)).cloned();
    of("stringValue", Value::is_string)
        .or_else(|| of("numberValue", Value::is_number))
        .or_else(|| of("boolValue", Value::is_boolean))
        .or_else(|| piece.get("nullValue").map(|_| Value::Null))
}

/// The steps of a path such as `$.a.b[0]['c d']`.
fn path_segments(path: &str) -> Option<Vec<PathSegment>> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step = if let Some(inner) = rest.strip_prefix('[') {
            let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
            if let Some(quote) = quote {
                let (name, after) = inner.get(1..)?.split_once(quote)?;
                rest = after.strip_prefix(']')?;
                PathSegment::Field(name.to_owned())
            } else {
                let (index, after) = inner.split_once(']')?;
                rest = after;
                PathSegment::Index(index.parse().ok().filter(|index| *index <= MAX_INDEX)?)
            }
        } else {
            let inner = rest.strip_prefix('.').unwrap_or(rest);
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            let (name, after) = inner.split_at(end);
            rest = after;
            PathSegment::Field(name.to_owned())
        };
        if let PathSegment::Field(name) = &step
            && matches!(
                name.as_str(),
                "" | "__proto__" | "constructor" | "prototype"
            )
        {
            return None;
        }
        steps.push(step);
        if steps.len() > MAX_DEPTH {
            return None;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn built(pieces: &[Value]) -> (Value, bool) {
        let mut arguments = Map::new();
        let mut fine = true;
        for piece in pieces {
            fine &= apply(&mut arguments, piece);
        }
        (Value::Object(arguments), fine)
    }

    #[test]
    fn w50_pieces_are_put_where_their_paths_say() {
        let (arguments, fine) = built(&[
            json!({"jsonPath": "$.place", "stringValue": "New ", "willContinue": true}),
            json!({"jsonPath": "$.place", "stringValue": "York", "willContinue": true}),
            json!({"jsonPath": "$.place"}),
            json!({"jsonPath": "$.list[1].n", "numberValue": 2}),
            json!({"jsonPath": "$['a b']", "boolValue": true}),
            json!({"jsonPath": "$.none", "nullValue": "NULL_VALUE"}),
        ]);
        assert!(fine);
        assert_eq!(
            arguments,
            json!({"place": "New York", "list": [null, {"n": 2}], "a b": true, "none": null})
        );
    }

    #[test]
    fn w50_paths_that_would_build_something_else_are_refused() {
        for path in [
            "$.__proto__.x",
            "$['constructor']",
            "$.a[99999999]",
            "$",
            "$.a..b",
            "$[0]",
            "$.a[x]",
            &format!("${}", ".a".repeat(40)),
        ] {
            let (arguments, fine) = built(&[json!({"jsonPath": path, "stringValue": "x"})]);
            assert!(!fine, "{path}: {arguments}");
        }
        // A path through what is no object.
        assert!(
            !built(&[
                json!({"jsonPath": "$.a", "numberValue": 1}),
                json!({"jsonPath": "$.a.b", "numberValue": 1}),
            ])
            .1
        );
    }
}
