//! A field of a question's form: what is said of it, and what a typed text is to it.
//!
//! The one judgement of what a person fills in at a terminal, in a chat that is redrawn and in one
//! that goes line by line. The schemas are the flat ones that MCP lets a server ask with
//! (`elicitation/create`): text, numbers, yes or no, a choice, and several of a list. What a server
//! says here is cleaned, and is one line.

use conjure_core::foreign_text::clean;
use serde_json::{Number, Value};

use super::choice::{choices, choose};
use super::format::text_format;
use super::limit::{CHARACTERS, ITEMS, bounds, describe_limits, is_count_allowed};

/// The most characters of a default that are shown.
const MAX_DEFAULT_CHARS: usize = 60;

/// A field of a form.
#[derive(Debug, Clone)]
pub struct FormField {
    name: String,
    schema: Value,
    is_required: bool,
}

/// Meaning of a typed text for a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldAnswer {
    /// Nothing: the field is left out.
    Omitted,
    /// The value of the field.
    Value(Value),
    /// No answer, with the reason; the field is asked for again.
    Invalid(String),
}

impl FormField {
    /// The fields of a form, in their order; none where it has no schema.
    #[must_use]
    pub fn all(schema: Option<&Value>) -> Vec<Self> {
        let required = schema.and_then(|schema| schema.get("required")?.as_array());
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
        };
        let fields = schema.and_then(|schema| schema.get("properties")?.as_object());
        let fields = fields.into_iter().flatten();
        fields
            .map(|(name, field)| Self::new(name, field, is_required(name)))
            .collect()
    }

    /// A field with its JSON schema.
    #[must_use]
    pub fn new(name: &str, schema: &Value, is_required: bool) -> Self {
        Self {
            name: name.to_owned(),
            schema: without_null(schema),
            is_required,
        }
    }

    /// Name of the field, as the form has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Label of the field, its name and what it takes: `guests (a whole number, optional, [2])`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} ({})", one_line(&self.name), self.rule())
    }

    /// Rule of the field: what it takes, whether it is needed, and its default in brackets.
    #[must_use]
    pub fn rule(&self) -> String {
        let needed = if self.is_required {
            "required"
        } else {
            "optional"
        };
        let rule = format!("{}, {needed}", describe_schema(&self.schema));
        match self.default() {
            Some(default) => format!("{rule}, [{}]", shorten(&display_value(default))),
            None => rule,
        }
    }

    /// Title and description of the field; empty where it has none.
    #[must_use]
    pub fn about(&self) -> String {
        let text = |member: &str| {
            let text = self.schema.get(member).and_then(Value::as_str);
            text.map(one_line).unwrap_or_default()
        };
        let (title, description) = (text("title"), text("description"));
        // SDKs make a title of the name, which says nothing more.
        let says_name = title.to_lowercase() == self.name.replace('_', " ").to_lowercase();
        if title.is_empty() || says_name {
            description
        } else if description.is_empty() {
            title
        } else {
            format!("{title}: {description}")
        }
    }

    /// The values that it may have, numbered; none where it is no choice.
    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        let schema = if kind(&self.schema) == "array" {
            items(&self.schema)
        } else {
            &self.schema
        };
        let listed = choices(schema).into_iter().enumerate();
        listed
            .map(|(at, choice)| format!("{}. {}", at + 1, choice.display_text()))
            .collect()
    }

    /// What a typed text is to the field. An empty one leaves an optional field out, or gives its
    /// default where it has one.
    #[must_use]
    pub fn parse_answer(&self, text: &str) -> FieldAnswer {
        let text = text.trim();
        if text.is_empty() {
            return match self.default() {
                Some(default) => FieldAnswer::Value(default.clone()),
                None if self.is_required => FieldAnswer::Invalid("It is needed.".to_owned()),
                None => FieldAnswer::Omitted,
            };
        }
        let value = self.value(text).and_then(|value| {
            check(&self.schema, &value)?;
            Ok(value)
        });
        match value {
            Ok(value) => FieldAnswer::Value(value),
            Err(problem) => FieldAnswer::Invalid(problem),
        }
    }

    /// The value that a text is by the field's kind and its choices. Bounds, lengths and formats
    /// are not looked at.
    ///
    /// # Errors
    /// What the field takes instead.
    pub fn value(&self, text: &str) -> Result<Value, String> {
        parse(&self.schema, text)
    }

    fn default(&self) -> Option<&Value> {
        self.schema
            .get("default")
            .filter(|default| !default.is_null())
    }
}

/// What a yes or a no is, as a person types it.
#[must_use]
pub fn yes_or_no(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "y" | "yes" | "true" => Some(true),
        "n" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// A text of somebody else's on one line, without what steers a terminal.
pub(super) fn one_line(text: &str) -> String {
    let cleaned = clean(text);
    let words: Vec<&str> = cleaned.split_whitespace().collect();
    words.join(" ")
}

/// A schema with the members of its only kind where it is a choice between one kind and nothing, as
/// SDKs write optional fields: `{"anyOf": [{"type": "integer"}, {"type": "null"}]}`.
fn without_null(schema: &Value) -> Value {
    let mut whole = schema.clone();
    let kind = ["anyOf", "oneOf"].into_iter().find_map(|alternatives| {
        let mut all = schema.get(alternatives)?.as_array()?.iter();
        all.find(|one| one.get("type").is_some_and(|kind| kind != "null"))
    });
    let kind = kind.filter(|kind| kind.get("const").is_none() && schema.get("type").is_none());
    let members = kind.and_then(Value::as_object).into_iter().flatten();
    if let Some(whole) = whole.as_object_mut() {
        for (name, member) in members {
            whole.entry(name.clone()).or_insert_with(|| member.clone());
        }
    }
    whole
}

/// The kind of a schema's values; text where it names none.
fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            kinds.find(|kind| *kind != "null").unwrap_or("string")
        }
        _ => "string",
    }
}

/// What a schema says of the items of a list.
fn items(schema: &Value) -> &Value {
    schema.get("items").unwrap_or(&Value::Null)
}

/// What a schema's values are, in words.
fn describe_schema(schema: &Value) -> String {
    let kind = kind(schema);
    if kind == "array" {
        let mut words = vec!["several, separated by commas".to_owned()];
        if choices(items(schema)).is_empty() {
            words.push(format!("each {}", describe_schema(items(schema))));
        }
        words.extend(describe_limits(schema, ITEMS));
        return words.join(", ");
    }
    if !choices(schema).is_empty() {
        return "one of those listed".to_owned();
    }
    let mut words = Vec::new();
    match kind {
        "integer" | "number" => {
            let number = if kind == "integer" {
                "a whole number"
            } else {
                "a number"
            };
            words.push(number.to_owned());
            words.extend(bounds(schema).map(|(bound, limit)| format!("{} {limit}", bound.phrase)));
        }
        "boolean" => words.push("y or n".to_owned()),
        _ => {
            let format = text_format(schema).map_or("text", |format| format.description);
            words.push(format.to_owned());
            words.extend(describe_limits(schema, CHARACTERS));
        }
    }
    words.join(", ")
}

/// Reads a text as a value of a schema's kind, or one of its choices.
fn parse(schema: &Value, text: &str) -> Result<Value, String> {
    let kind = kind(schema);
    if kind == "array" {
        return parse_list(items(schema), text);
    }
    let choices = choices(schema);
    if !choices.is_empty() {
        let chosen = choose(&choices, text).map(|choice| choice.value.clone());
        let problem = "It is none of those listed: give a value, a title or a number.";
        return chosen.ok_or_else(|| problem.to_owned());
    }
    let value = match kind {
        "integer" => integer(text).map(Value::Number),
        "number" => integer(text).or_else(|| fraction(text)).map(Value::Number),
        "boolean" => yes_or_no(text).map(Value::Bool),
        _ => Some(Value::String(text.to_owned())),
    };
    value.ok_or_else(|| format!("It is {}.", describe_schema(schema)))
}

/// Reads a list, of which each item is given once.
fn parse_list(items: &Value, text: &str) -> Result<Value, String> {
    // A choice may have a comma in it.
    let is_one = choose(&choices(items), text).is_some();
    let pieces = if is_one {
        vec![text]
    } else {
        text.split(',').map(str::trim).collect()
    };
    let mut values = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let value = parse(items, piece);
        let value = value.map_err(|problem| format!("{}: {problem}", one_line(piece)))?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(Value::Array(values))
}

fn integer(text: &str) -> Option<Number> {
    let positive = || text.parse::<u64>().ok().map(Number::from);
    text.parse::<i64>().ok().map(Number::from).or_else(positive)
}

/// A number with a fraction; what is not finite is none.
fn fraction(text: &str) -> Option<Number> {
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

/// Checks a value of the right kind for its bounds, its length and its format.
fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let fits = match value {
        Value::Array(values) => {
            for value in values {
                let checked = check(items(schema), value);
                checked.map_err(|problem| format!("{}: {problem}", display_value(value)))?;
            }
            is_count_allowed(schema, ITEMS, values.len())
        }
        // What is listed is allowed.
        _ if !choices(schema).is_empty() => true,
        Value::Number(number) => number.as_f64().is_some_and(|number| {
            bounds(schema).all(|(bound, limit)| (bound.is_satisfied)(number, limit))
        }),
        Value::String(text) => {
            is_count_allowed(schema, CHARACTERS, text.chars().count())
                && text_format(schema).is_none_or(|format| (format.matches)(text))
        }
        _ => true,
    };
    if fits {
        return Ok(());
    }
    Err(format!("It is {}.", describe_schema(schema)))
}

/// A value as a person reads it.
fn display_value(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => one_line(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(display_value).collect();
            values.join(", ")
        }
        other => one_line(&other.to_string()),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_DEFAULT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn optional(schema: &Value) -> FormField {
        FormField::new("it", schema, false)
    }

    fn given(value: Value) -> FieldAnswer {
        FieldAnswer::Value(value)
    }

    fn refused(problem: &str) -> FieldAnswer {
        FieldAnswer::Invalid(problem.to_owned())
    }

    #[test]
    fn the_fields_say_what_they_take() {
        let form = json!({ "required": ["name"], "properties": {
            "name": { "type": "string", "title": "Name", "minLength": 2, "maxLength": 40 },
            "guests": { "type": "integer", "minimum": 1, "default": 2 },
            "share": { "type": "number", "exclusiveMaximum": 1.5 },
            "pets": { "type": "boolean", "default": false },
            "mail": { "type": "string", "format": "email" },
            "colour": { "enum": ["r", "g"], "enumNames": ["Red", "Green"], "default": "r" },
            "meals": { "type": "array", "items": { "enum": ["x", "y"] }, "minItems": 1 },
            "years": { "type": "array", "items": { "type": "integer" } },
        } });
        let fields = FormField::all(Some(&form));
        let labels: Vec<String> = fields.iter().map(FormField::label).collect();
        assert_eq!(
            labels,
            [
                "name (text, 2 to 40 characters, required)",
                "guests (a whole number, at least 1, optional, [2])",
                "share (a number, less than 1.5, optional)",
                "pets (y or n, optional, [no])",
                "mail (an e-mail address, such as ada@example.org, optional)",
                "colour (one of those listed, optional, [r])",
                "meals (several, separated by commas, at least 1 of them, optional)",
                "years (several, separated by commas, each a whole number, optional)",
            ]
        );
        assert_eq!(fields[5].choices(), ["1. r (Red)", "2. g (Green)"]);
        assert_eq!(fields[6].choices(), ["1. x", "2. y"]);
        assert_eq!(fields[0].choices(), [] as [&str; 0]);
        assert_eq!(fields[0].about(), "");
        assert!(FormField::all(None).is_empty());
    }

    #[test]
    fn an_empty_answer_leaves_a_field_out_or_gives_its_default_or_is_refused() {
        for schema in [
            json!({ "type": "string" }),
            json!({ "type": "integer" }),
            json!({ "type": "boolean" }),
            json!({ "type": "string", "enum": ["a"] }),
            json!({ "type": "array", "items": { "enum": ["a"] } }),
            json!({ "type": "integer", "default": null }),
        ] {
            assert_eq!(optional(&schema).parse_answer(" \n"), FieldAnswer::Omitted);
            let required = FormField::new("it", &schema, true);
            assert_eq!(
                required.parse_answer(""),
                refused("It is needed."),
                "{schema}"
            );
        }
        for default in [json!(2), json!(false), json!("x"), json!(["a"])] {
            let schema = json!({ "default": default });
            for is_required in [false, true] {
                let field = FormField::new("it", &schema, is_required);
                assert_eq!(field.parse_answer(""), given(default.clone()));
            }
        }
    }

    #[test]
    fn numbers_are_checked_for_their_kind_and_their_bounds() {
        let whole = optional(&json!({ "type": "integer", "minimum": 1, "maximum": 10 }));
        assert_eq!(whole.parse_answer(" 10 "), given(json!(10)));
        let problem = refused("It is a whole number, at least 1, at most 10.");
        for text in ["many", "2.5", "0", "11", "1e1"] {
            assert_eq!(whole.parse_answer(text), problem, "{text}");
        }
        let number = optional(&json!({ "type": "number", "exclusiveMinimum": 0 }));
        assert_eq!(number.parse_answer("2"), given(json!(2)));
        assert_eq!(number.parse_answer("0.25"), given(json!(0.25)));
        let problem = refused("It is a number, more than 0.");
        for text in ["0", "nan", "inf", "2,5"] {
            assert_eq!(number.parse_answer(text), problem, "{text}");
        }
        let large = optional(&json!({ "type": "integer" }));
        assert_eq!(
            large.parse_answer("18446744073709551615"),
            given(json!(u64::MAX))
        );
    }

    #[test]
    fn texts_are_checked_for_their_length_and_their_format() {
        let name = optional(&json!({ "type": "string", "minLength": 2, "maxLength": 3 }));
        assert_eq!(name.parse_answer("Åsa"), given(json!("Åsa")));
        for text in ["a", "abcd"] {
            assert_eq!(
                name.parse_answer(text),
                refused("It is text, 2 to 3 characters."),
                "{text}"
            );
        }
        let day = optional(&json!({ "type": "string", "format": "date" }));
        assert_eq!(day.parse_answer("2026-01-31"), given(json!("2026-01-31")));
        assert_eq!(
            day.parse_answer("tomorrow"),
            refused("It is a date, such as 2026-01-31.")
        );
        let other = optional(&json!({ "type": "string", "format": "colour" }));
        assert_eq!(other.parse_answer("x"), given(json!("x")));
    }

    #[test]
    fn a_yes_or_no_and_a_choice_are_what_they_say() {
        let sure = optional(&json!({ "type": "boolean" }));
        for (text, value) in [("y", true), ("TRUE", true), ("no", false), ("false", false)] {
            assert_eq!(sure.parse_answer(text), given(json!(value)), "{text}");
        }
        assert_eq!(sure.parse_answer("maybe"), refused("It is y or n."));
        let colour = json!({ "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] });
        let colour = optional(&colour);
        assert_eq!(colour.parse_answer("Green"), given(json!("g")));
        let problem = "It is none of those listed: give a value, a title or a number.";
        assert_eq!(colour.parse_answer("Blue"), refused(problem));
    }

    #[test]
    fn a_list_takes_several_and_each_is_checked() {
        let meals = optional(
            &json!({ "type": "array", "minItems": 1, "maxItems": 2, "items": {
            "anyOf": [
                { "const": "b", "title": "Breakfast" },
                { "const": "l", "title": "Lunch, late" },
                { "const": "d", "title": "Dinner" },
            ],
        } }),
        );
        assert_eq!(meals.parse_answer("Breakfast, 3"), given(json!(["b", "d"])));
        assert_eq!(meals.parse_answer("b,b,"), given(json!(["b"])));
        assert_eq!(meals.parse_answer("Lunch, late"), given(json!(["l"])));
        let problem = "Tea: It is none of those listed: give a value, a title or a number.";
        assert_eq!(meals.parse_answer("b, Tea"), refused(problem));
        let problem = refused("It is several, separated by commas, 1 to 2 of them.");
        assert_eq!(meals.parse_answer("b, l, d"), problem);
        let years = json!({ "type": "array", "items": { "type": "integer", "minimum": 1900 } });
        let years = optional(&years);
        assert_eq!(years.parse_answer("1999, 2000"), given(json!([1999, 2000])));
        let problem = "3: It is a whole number, at least 1900.";
        assert_eq!(years.parse_answer("1999, 3"), refused(problem));
    }

    #[test]
    fn a_kind_or_nothing_is_that_kind() {
        for schema in [
            json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": null }),
            json!({ "type": ["null", "integer"] }),
        ] {
            assert_eq!(
                optional(&schema).parse_answer("3"),
                given(json!(3)),
                "{schema}"
            );
            assert_eq!(optional(&schema).parse_answer(""), FieldAnswer::Omitted);
        }
    }

    #[test]
    fn what_a_field_says_is_one_line_and_steers_nothing() {
        let field = FormField::new(
            "a\n? other asks: x\u{1b}[2J",
            &json!({
                "title": "T\r\n\u{9b}2J",
                "description": "d\nd",
                "default": format!("{}\u{7}\n", "x".repeat(100)),
            }),
            false,
        );
        let shown = format!("{}{}", field.label(), field.about());
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.contains(&format!("[{}…]", "x".repeat(60))), "{shown}");
        assert_eq!(field.about(), "T 2J: d d");
    }

    #[test]
    fn a_value_out_of_bounds_keeps_its_kind() {
        let field = optional(&json!({ "type": "integer", "maximum": 3 }));
        assert_eq!(field.value("50"), Ok(json!(50)));
        assert!(field.value("many").is_err());
    }
}
