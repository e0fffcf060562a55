//! A question of a plugin or a server, as a form that is made from its JSON schema.

use conjure_core::chat::QuestionAsked;
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde_json::{Map, Number, Value};

use super::address::{ConversationAddress, element_id};
use crate::client::segment;
use crate::forms::Field;

/// The question.
pub(crate) fn form(address: &ConversationAddress, question: &QuestionAsked) -> Markup {
    let id = element_id("question", &question.id);
    let action = address.of_session(&format!("questions/{}", segment(&question.id)));
    html! {
        form.entry.ask id=(id) method="post" action=(action) data-swap="" {
            p { strong { (clean(&question.plugin)) " asks" } }
            p.said { (clean(&question.message)) }
            @if let Some(url) = &question.url { (page(url)) }
            @for field in fields(question.schema.as_ref()) { (field.render(&id)) }
            div.row {
                button.primary id={ (id) "-accept" } name="action" value="accept" {
                    @if question.url.is_some() { "I have been there" } @else { "Answer" }
                }
                button id={ (id) "-decline" } name="action" value="decline" formnovalidate { "Decline" }
                button.plain id={ (id) "-cancel" } name="action" value="cancel" formnovalidate { "Not now" }
            }
        }
    }
}

/// What became of it.
pub(crate) fn outcome(id: &str, action: &str) -> Markup {
    let words = match action {
        "accept" => "Answered.",
        "decline" => "Declined.",
        _ => "Nobody answered.",
    };
    html! { div.entry.notice id=(element_id("question", id)) { p { "A question: " (words) } } }
}

/// The page that a question leads to.
fn page(url: &str) -> Markup {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    html! {
        p {
            @if is_web {
                a href=(url) target="_blank" rel="noopener noreferrer nofollow" { (clean(url)) }
            } @else {
                code { (clean(url)) }
            }
        }
    }
}

/// One field of the form.
struct QuestionField<'a> {
    name: &'a str,
    schema: &'a Value,
    /// What of the schema says which values it takes.
    takes: &'a Value,
    required: bool,
}

fn fields(schema: Option<&Value>) -> Vec<QuestionField<'_>> {
    let Some(schema) = schema else {
        return Vec::new();
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let all = schema.get("properties").and_then(Value::as_object);
    let all = all.into_iter().flatten();
    all.map(|(name, schema)| QuestionField {
        name,
        schema,
        takes: without_null(schema),
        required: required.contains(&name.as_str()),
    })
    .collect()
}

/// The schema that says what a field takes, of one that may also be left out by `null`, as some
/// libraries write it.
fn without_null(schema: &Value) -> &Value {
    let any = schema.get("anyOf").and_then(Value::as_array);
    let any = any.filter(|any| any.iter().any(is_null));
    let mut others = any.into_iter().flatten().filter(|one| !is_null(one));
    match (others.next(), others.next()) {
        (Some(one), None) => one,
        _ => schema,
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

/// The type that a schema names; of several the first that is not `null`.
fn kind(schema: &Value) -> &str {
    let named = schema.get("type");
    let several = named.and_then(Value::as_array).into_iter().flatten();
    let several = several
        .filter_map(Value::as_str)
        .find(|kind| *kind != "null");
    named
        .and_then(Value::as_str)
        .or(several)
        .unwrap_or_default()
}

impl QuestionField<'_> {
    fn schema_text(&self, key: &str) -> &str {
        self.schema
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn render(&self, form: &str) -> Markup {
        let id = format!("{form}-{}", element_id("field", self.name));
        let title = self.schema_text("title");
        let label = clean(if title.is_empty() { self.name } else { title });
        let hint = clean(self.schema_text("description"));
        let name = format!("field.{}", self.name);
        let mut field = Field::new(&id, &name, &label).hint(&hint);
        if self.required {
            field = field.required();
        }
        let default = self.schema.get("default");
        let text = match default {
            Some(Value::String(text)) => text.clone(),
            Some(value) if !value.is_null() => value.to_string(),
            _ => String::new(),
        };
        let shown = clean(&text);
        if kind(self.takes) == "array" {
            if let Some(items) = self.takes.get("items").and_then(choices) {
                return self.checkboxes(&id, &label, &hint, &items);
            }
            return field.textarea(3, "");
        }
        if let Some(mut all) = choices(self.takes) {
            // Without it a browser would choose the first for a person.
            if text.is_empty() {
                all.insert(0, (String::new(), "Choose…".to_owned()));
            }
            return field.select(&text, &all);
        }
        match kind(self.takes) {
            "boolean" => field.checkbox(default == Some(&Value::Bool(true))),
            "integer" | "number" => field.input("number", &shown),
            _ => match self
                .takes
                .get("format")
                .and_then(Value::as_str)
                .unwrap_or_default()
            {
                "email" => field.input("email", &shown),
                "uri" => field.input("url", &shown),
                "date" => field.input("date", &shown),
                _ => field.input("text", &shown),
            },
        }
    }

    /// Any number of these.
    fn checkboxes(&self, id: &str, label: &str, hint: &str, all: &[(String, String)]) -> Markup {
        let default = self.schema.get("default").and_then(Value::as_array);
        let is_default = |value: &str| {
            let mut default = default.into_iter().flatten();
            default.any(|one| one.as_str() == Some(value))
        };
        html! {
            fieldset id=(id) {
                legend { (label) }
                @for (at, (value, words)) in all.iter().enumerate() {
                    label.choice for={ (id) "-" (at) } {
                        input id={ (id) "-" (at) } type="checkbox" name={ "field." (self.name) } value=(value)
                            checked[is_default(value)];
                        " " (words)
                    }
                }
                @if !hint.is_empty() { p.hint { (hint) } }
            }
        }
    }
}

/// What a value of this schema is one of: the values, and the words for them.
fn choices(schema: &Value) -> Option<Vec<(String, String)>> {
    let words = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(all) = schema.get("enum").and_then(Value::as_array) {
        let names = schema.get("enumNames").and_then(Value::as_array);
        let named = |at: usize| names.and_then(|names| names.get(at)).and_then(words);
        let all = all.iter().enumerate().filter_map(|(at, value)| {
            let value = words(value)?;
            let name = named(at).unwrap_or_else(|| value.clone());
            Some((value, clean(&name).into_owned()))
        });
        let all: Vec<(String, String)> = all.collect();
        return Some(all).filter(|all| !all.is_empty());
    }
    let all = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
    let all = all.as_array()?.iter().filter_map(|one| {
        let value = one.get("const").and_then(words)?;
        let name = one.get("title").and_then(words);
        let name = name.unwrap_or_else(|| value.clone());
        Some((value, clean(&name).into_owned()))
    });
    let all: Vec<(String, String)> = all.collect();
    Some(all).filter(|all| !all.is_empty())
}

/// What was filled in, in the types of the schema. What cannot be one stays text, so that the
/// host says what is wrong with it.
pub(crate) fn content(schema: Option<&Value>, sent: &[(String, String)]) -> Map<String, Value> {
    let mut content = Map::new();
    for field in fields(schema) {
        let name = format!("field.{}", field.name);
        let all = sent.iter().filter(|(sent, _)| *sent == name);
        let all: Vec<&str> = all.map(|(_, value)| value.as_str()).collect();
        let value = match (kind(field.takes), all.first().copied()) {
            ("boolean", given) => Value::Bool(given.is_some()),
            ("array", None) if !field.required => continue,
            // Without a list to choose from they are lines of a text.
            ("array", _) => {
                let items = field.takes.get("items").map(kind).unwrap_or_default();
                all.iter()
                    .flat_map(|text| text.lines())
                    .map(|text| parse_value(items, text))
                    .collect()
            }
            (_, None) => continue,
            (_, Some("")) if !field.required => continue,
            (kind, Some(text)) => parse_value(kind, text),
        };
        content.insert(field.name.to_owned(), value);
    }
    content
}

/// A text in the type that is wanted; what cannot be one stays text.
fn parse_value(kind: &str, text: &str) -> Value {
    let read = match kind {
        "integer" => text.parse::<i64>().ok().map(Number::from),
        "number" => text.parse::<f64>().ok().and_then(Number::from_f64),
        _ => None,
    };
    read.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({ "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "title": "<b>Name</b>", "default": "\"x" },
            "count": { "type": "integer" },
            "share": { "type": "number" },
            "sure": { "type": "boolean", "default": true },
            "colour": { "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] },
            "size": { "type": "string", "oneOf": [{ "const": "s", "title": "Small" }] },
            "maybe": { "title": "Perhaps", "default": 3,
                       "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "sizes": { "type": ["array", "null"], "items": { "type": "integer" } },
            "level": { "type": "integer", "enum": [1, 2] },
            "many": { "type": "array", "default": ["b"], "items": { "enum": ["a", "b"] } },
        } })
    }

    #[test]
    fn a_form_has_a_field_for_each_property() {
        let question = QuestionAsked {
            id: "q1".to_owned(),
            plugin: "p<script>".to_owned(),
            call_id: None,
            message: "Which <one>?".to_owned(),
            schema: Some(schema()),
            url: Some("javascript:alert(1)".to_owned()),
        };
        let address = ConversationAddress {
            session: "s".to_owned(),
            name: "s".to_owned(),
            thread: None,
            shared: None,
        };
        let shown = form(&address, &question).into_string();
        for part in [
            "&lt;b&gt;Name",
            "type=\"number\"",
            "Red",
            "Small",
            "&lt;one&gt;",
            "checked",
            "Choose…",
            "Perhaps",
            "value=\"3\"",
            "value=\"b\" checked",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("href=\"javascript"), "{shown}");
        assert!(!shown.contains("<script>"), "{shown}");
    }

    #[test]
    fn what_is_filled_in_has_the_types_of_the_schema() {
        let sent = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let pair =
                |(name, value): &(&str, &str)| (format!("field.{name}"), (*value).to_owned());
            pairs.iter().map(pair).collect()
        };
        let all = sent(&[
            ("name", "a"),
            ("count", "3"),
            ("share", "0.5"),
            ("colour", "g"),
            ("maybe", "4"),
            ("sizes", "7\n8"),
            ("level", "2"),
            ("many", "a"),
            ("many", "b"),
        ]);
        assert_eq!(
            Value::Object(content(Some(&schema()), &all)),
            json!({
                "name": "a", "count": 3, "share": 0.5, "sure": false, "colour": "g",
                "many": ["a", "b"], "maybe": 4, "sizes": [7, 8], "level": 2,
            })
        );
        let wrong = sent(&[("name", ""), ("count", "x"), ("sure", "on"), ("size", "")]);
        assert_eq!(
            Value::Object(content(Some(&schema()), &wrong)),
            json!({ "name": "", "count": "x", "sure": true })
        );
    }
}
