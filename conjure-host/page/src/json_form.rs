//! A part of a form that has two tabs: fields for what is usual, and all of it as JSON.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::client::ApiProblem;
use crate::saved::{Sent, invalid};

/// The tabs of one object.
pub(crate) struct Tabs<'a> {
    /// What the ids begin with.
    prefix: &'a str,
    /// The object's name.
    name: &'a str,
    /// The same for people.
    legend: &'a str,
    sent: &'a Sent,
}

impl<'a> Tabs<'a> {
    pub(crate) fn new(prefix: &'a str, name: &'a str, legend: &'a str, sent: &'a Sent) -> Self {
        Self {
            prefix,
            name,
            legend,
            sent,
        }
    }

    /// Both tabs: `NAME_mode` says which one counts, `NAME_json` is the second.
    pub(crate) fn show(
        &self,
        fields: &Markup,
        hint: &str,
        now: &Map<String, Value>,
        error: Option<&str>,
    ) -> Markup {
        let (prefix, name) = (self.prefix, self.name);
        let mode = format!("{name}_mode");
        let is_json = self.sent.text(&mode) == "json";
        let json = match is_json {
            true => self.sent.text(&format!("{name}_json")),
            false => serde_json::to_string_pretty(now).unwrap_or_default(),
        };
        let id = format!("{prefix}-{name}-json");
        html! {
            fieldset.tabs {
                legend { (self.legend) }
                div.tab-row {
                    @for (value, words, chosen) in [("form", "Form", !is_json), ("json", "Advanced", is_json)] {
                        label.tab {
                            input.unseen id={ (prefix) "-" (name) "-tab-" (value) } type="radio" name=(mode)
                                value=(value) checked[chosen];
                            (words)
                        }
                    }
                }
                div.tab-form { (fields) }
                div.tab-json {
                    div.field {
                        label for=(id) { (self.legend) " as JSON" }
                        textarea.code id=(id) name={ (name) "_json" } rows="8" spellcheck="false"
                            aria-describedby={ (id) "-words" } aria-invalid=[error.map(|_| "true")] {
                            "\n" (json)
                        }
                        p.hint id={ (id) "-words" } { (hint) }
                    }
                }
                @if let Some(error) = error { p.hint.wrong { (error) } }
            }
        }
    }
}

/// An object out of what was typed.
pub(crate) fn object(name: &str, text: &str) -> Result<Map<String, Value>, ApiProblem> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(invalid(format!(
            "`{name}` has to be a JSON object: `{{…}}`"
        ))),
        Err(error) => Err(invalid(format!("`{name}` is no JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_an_object() {
        assert_eq!(
            Value::Object(object("memory", " {\"a\": 1} ").unwrap()),
            json!({ "a": 1 })
        );
        assert!(object("memory", "").unwrap().is_empty());
        let problem = object("memory", "[1]").unwrap_err();
        assert_eq!(problem.detail, "`memory` has to be a JSON object: `{…}`");
        let problem = object("memory", "{\n \"a\" 1}").unwrap_err();
        assert!(
            problem.detail.starts_with("`memory` is no JSON: ")
                && problem.detail.contains("line 2")
        );
    }
}
