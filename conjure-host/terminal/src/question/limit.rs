//! The limits of a form's numbers, and of how long its texts and its lists are.

use serde_json::Value;

/// A bound of a number.
pub(super) struct NumberBound {
    member: &'static str,
    /// What stands before the limit.
    pub(super) phrase: &'static str,
    /// Whether a number keeps to a limit.
    pub(super) is_satisfied: fn(f64, f64) -> bool,
}

static BOUNDS: [NumberBound; 4] = [
    NumberBound {
        member: "minimum",
        phrase: "at least",
        is_satisfied: |number, limit| number >= limit,
    },
    NumberBound {
        member: "exclusiveMinimum",
        phrase: "more than",
        is_satisfied: |number, limit| number > limit,
    },
    NumberBound {
        member: "maximum",
        phrase: "at most",
        is_satisfied: |number, limit| number <= limit,
    },
    NumberBound {
        member: "exclusiveMaximum",
        phrase: "less than",
        is_satisfied: |number, limit| number < limit,
    },
];

/// The bounds that a schema sets, with their limits.
pub(super) fn bounds(schema: &Value) -> impl Iterator<Item = (&'static NumberBound, f64)> + '_ {
    BOUNDS.iter().filter_map(move |bound| {
        let limit = schema.get(bound.member)?.as_f64()?;
        Some((bound, limit))
    })
}

/// What a schema counts: the members for the least and the most, and what is counted.
pub(super) type CountLimit = [&'static str; 3];

/// A text's characters.
pub(super) const CHARACTERS: CountLimit = ["minLength", "maxLength", "characters"];
/// A list's items.
pub(super) const ITEMS: CountLimit = ["minItems", "maxItems", "of them"];

/// The least and the most that a schema sets.
fn limits(schema: &Value, [least, most, _]: CountLimit) -> (Option<u64>, Option<u64>) {
    let limit = |member: &str| schema.get(member).and_then(Value::as_u64);
    (limit(least).filter(|least| *least > 0), limit(most))
}

/// Whether a schema allows so many.
pub(super) fn is_count_allowed(schema: &Value, counted: CountLimit, count: usize) -> bool {
    let (least, most) = limits(schema, counted);
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    least.is_none_or(|least| count >= least) && most.is_none_or(|most| count <= most)
}

/// How many a schema wants, in words; nothing where any number will do.
pub(super) fn describe_limits(schema: &Value, counted: CountLimit) -> Option<String> {
    let [_, _, unit] = counted;
    match limits(schema, counted) {
        (Some(least), Some(most)) => Some(format!("{least} to {most} {unit}")),
        (Some(least), None) => Some(format!("at least {least} {unit}")),
        (None, Some(most)) => Some(format!("at most {most} {unit}")),
        (None, None) => None,
    }
}
