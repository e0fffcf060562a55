//! The values that a field of a form may have, with their titles, and which one a text means.

use serde_json::Value;

use super::field::one_line;

/// A value that a field may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldChoice<'a> {
    /// The value.
    pub(super) value: &'a Value,
    title: Option<&'a str>,
}

/// The values that a schema allows, where it lists them: with `enum` and `enumNames`, or with
/// `oneOf` or `anyOf` of a `const` and a `title`.
pub(super) fn choices(schema: &Value) -> Vec<FieldChoice<'_>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let titles = schema.get("enumNames").and_then(Value::as_array);
        let title = |at: usize| titles.and_then(|titles| titles.get(at)?.as_str());
        let values = values.iter().enumerate();
        return values
            .filter(|(_, value)| !value.is_null())
            .map(|(at, value)| FieldChoice {
                value,
                title: title(at),
            })
            .collect();
    }
    ["oneOf", "anyOf"]
        .into_iter()
        .filter_map(|listed| schema.get(listed)?.as_array())
        .flatten()
        .filter_map(|one| {
            Some(FieldChoice {
                value: one.get("const").filter(|value| !value.is_null())?,
                title: one.get("title").and_then(Value::as_str),
            })
        })
        .collect()
}

/// The choice that a text means: by its value, by its title, or by its number in the list, in this
/// order. Small and capital letters count only where several would be meant otherwise.
pub(super) fn choose<'a>(choices: &[FieldChoice<'a>], text: &str) -> Option<FieldChoice<'a>> {
    let folded = text.to_lowercase();
    let is_folded = |choice: &FieldChoice<'_>| {
        choice.value_text().to_lowercase() == folded || choice.title_text().to_lowercase() == folded
    };
    let by_value = choices.iter().find(|choice| choice.value_text() == text);
    by_value
        .copied()
        .or_else(|| only(choices, |choice| choice.title_text() == text))
        .or_else(|| only(choices, is_folded))
        .or_else(|| {
            let number: usize = text.parse().ok()?;
            choices.get(number.checked_sub(1)?).copied()
        })
}

/// The choice that fits, if it is the only one.
fn only<'a>(
    choices: &[FieldChoice<'a>],
    fits: impl Fn(&FieldChoice<'a>) -> bool,
) -> Option<FieldChoice<'a>> {
    let mut fitting = choices.iter().filter(|choice| fits(choice));
    let first = fitting.next()?;
    fitting.next().is_none().then_some(*first)
}

impl FieldChoice<'_> {
    /// The value as it is typed.
    fn value_text(&self) -> String {
        let text = self.value.as_str();
        text.map_or_else(|| self.value.to_string(), str::to_owned)
    }

    /// The title as a person sees it; where there is none, the value.
    fn title_text(&self) -> String {
        let word = || one_line(&self.value_text());
        self.title.map_or_else(word, one_line)
    }

    /// What a person sees of it: the value, and its title where that says more.
    pub(super) fn display_text(&self) -> String {
        let (word, title) = (one_line(&self.value_text()), self.title_text());
        if word == title {
            word
        } else {
            format!("{word} ({title})")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(schema: &Value, text: &str) -> Option<Value> {
        choose(&choices(schema), text).map(|choice| choice.value.clone())
    }

    #[test]
    fn a_choice_is_meant_by_its_value_its_title_or_its_number() {
        for schema in [
            json!({ "enum": ["r", "g"], "enumNames": ["Red", "Green"] }),
            json!({ "oneOf": [
                { "const": "r", "title": "Red" },
                { "const": "g", "title": "Green" },
            ] }),
        ] {
            for text in ["g", "Green", "green", "G", "2"] {
                assert_eq!(chosen(&schema, text), Some(json!("g")), "{text}");
            }
            for text in ["Blue", "0", "3", "-1", "re"] {
                assert_eq!(chosen(&schema, text), None, "{text}");
            }
        }
        let numbers = json!({ "enum": [3, 1, null] });
        assert_eq!(chosen(&numbers, "1"), Some(json!(1)));
        assert_eq!(chosen(&numbers, "2"), Some(json!(1)));
        let alike = json!({ "enum": ["a", "A", "b"], "enumNames": ["x", "x", "y"] });
        assert_eq!(chosen(&alike, "A"), Some(json!("A")));
        assert_eq!(chosen(&alike, "x"), None);
    }

    #[test]
    fn what_is_shown_of_a_choice_stays_on_its_line() {
        let schema = json!({ "enum": ["r", "g\n2. x"], "enumNames": ["Red\u{1b}[2J", "g"] });
        let shown: Vec<String> = choices(&schema)
            .iter()
            .map(FieldChoice::display_text)
            .collect();
        assert_eq!(shown, ["r (Red[2J)", "g 2. x (g)"]);
    }
}
