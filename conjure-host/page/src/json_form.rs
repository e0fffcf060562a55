//! A part of a form that has two tabs: fields for what is usual, and all of it as JSON.

use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::client::ApiProblem;
use crate::saved::{FormData, invalid_at};

/// The tabs of one object.
pub(crate) struct Tabs<'a> {
    /// What the ids begin with.
    prefix: &'a str,
    /// The object's name.
    name: &'a str,
    /// Name of the object for people.
    legend: &'a str,
    sent: &'a FormData,
}

impl<'a> Tabs<'a> {
    pub(crate) fn new(prefix: &'a str, name: &'a str, legend: &'a str, sent: &'a FormData) -> Self {
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
        // Nobody gets into a field of the tab that is not seen.
        let is_wrong = is_json && error.is_some();
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
                            aria-describedby={ (id) "-words" } aria-invalid=[is_wrong.then_some("true")]
                            autofocus[is_wrong] {
                            "\n" (json)
                        }
                        p.hint id={ (id) "-words" } { (hint) }
                    }
                }
                @if let Some(error) = error {
                    p.hint.wrong tabindex="-1" autofocus[!is_json] { (error) }
                }
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
        Ok(_) => {
            let detail = format!("`{name}` has to be a JSON object: `{{…}}`");
            Err(invalid_at(name, detail))
        }
        Err(error) => Err(invalid_at(name, format!("`{name}` is no JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_field_that_is_seen_is_where_one_goes_on() {
        for mode in ["form", "json"] {
            let sent = FormData::from([("settings_mode", mode.to_owned())]);
            let tabs = Tabs::new("mcp", "settings", "Settings", &sent);
            let shown = tabs.show(&html! {}, "All of it", &Map::new(), Some("it is empty"));
            let shown = shown.into_string();
            let (before, field) = shown.split_once("<textarea").unwrap();
            let (field, behind) = field.split_once('>').unwrap();
            assert!(!before.contains("autofocus"), "{shown}");
            for mark in ["aria-invalid", "autofocus"] {
                assert_eq!(field.contains(mark), mode == "json", "{shown}");
            }
            assert_eq!(behind.contains("autofocus"), mode == "form", "{shown}");
        }
    }

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
