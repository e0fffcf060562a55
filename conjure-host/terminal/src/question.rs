//! A question of a plugin or a server: a form, filled in field by field.

use conjure_core::chat::QuestionAsked;
use serde_json::{Map, Value};

use crate::text::{Color, Line, Style};

/// A form that is being filled in.
#[derive(Debug)]
pub(crate) struct QuestionForm {
    pub(crate) id: String,
    fields: Vec<(String, Value)>,
    content: Map<String, Value>,
    /// What was wrong with the last answer.
    wrong: Option<String>,
}

/// How far a form is after an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FormProgress {
    /// Something is still to be filled in.
    Goes,
    /// The whole form.
    Whole(Map<String, Value>),
    /// The person does not want to.
    Declined,
}

impl QuestionForm {
    pub(crate) fn new(asked: &QuestionAsked) -> Self {
        let fields = asked
            .schema
            .as_ref()
            .and_then(|schema| schema.get("properties"));
        let fields = fields
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        Self {
            id: asked.id.clone(),
            fields: fields.into_iter().rev().collect(),
            content: Map::new(),
            wrong: None,
        }
    }

    /// What is asked now, and what can be typed.
    pub(crate) fn render(&self, columns: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        match self.fields.last() {
            Some((name, field)) => {
                let text = |key| field.get(key).and_then(Value::as_str);
                let about = text("description").or_else(|| text("title"));
                let mut line = Line::of(name, Style::of(Color::Yellow).bold());
                line.push(format!("  {}", about.unwrap_or_default()), Style::PLAIN);
                lines.push(line.cut(columns));
                let values = choices(field);
                let hint = if values.is_empty() {
                    let kind = text("type").unwrap_or("string");
                    format!("a {kind}; Esc declines")
                } else {
                    format!("one of: {}; Esc declines", values.join(", "))
                };
                lines.push(Line::of(hint, Style::DIM).cut(columns));
            }
            None => lines.push(Line::of("y for yes, n for no; Esc declines", Style::DIM)),
        }
        if let Some(wrong) = &self.wrong {
            lines.push(Line::of(wrong, Style::of(Color::Yellow)).cut(columns));
        }
        lines
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, text: &str) -> FormProgress {
        self.wrong = None;
        let text = text.trim();
        let Some((name, field)) = self.fields.last() else {
            return match text {
                "y" | "yes" => FormProgress::Whole(std::mem::take(&mut self.content)),
                "n" | "no" => FormProgress::Declined,
                _ => {
                    self.wrong = Some("That is no answer: y or n.".to_owned());
                    FormProgress::Goes
                }
            };
        };
        match typed(text, field) {
            Ok(value) => {
                self.content.insert(name.clone(), value);
                self.fields.pop();
            }
            Err(wrong) => {
                self.wrong = Some(wrong);
                return FormProgress::Goes;
            }
        }
        if self.fields.is_empty() {
            FormProgress::Whole(std::mem::take(&mut self.content))
        } else {
            FormProgress::Goes
        }
    }
}

/// What is asked, as it stays on the terminal.
pub(crate) fn told(asked: &QuestionAsked, columns: usize) -> Vec<Line> {
    let head = Line::of("? ", Style::of(Color::Yellow).bold())
        .with(&asked.plugin, Style::BOLD)
        .with(" asks: ", Style::PLAIN);
    let indent = Line::of("  ", Style::PLAIN);
    let message = Line::of(&asked.message, Style::PLAIN);
    let mut lines = message.wrap(columns, &head, &indent);
    if let Some(url) = &asked.url {
        let url = Line::of(format!("Open {url}"), Style::of(Color::Cyan));
        lines.extend(url.chunks(columns, &indent, &indent));
    }
    lines
}

fn choices(field: &Value) -> Vec<String> {
    let values = field.get("enum").and_then(Value::as_array);
    let values = values.into_iter().flatten();
    values
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect()
}

/// What was typed, as the field's type says.
fn typed(text: &str, field: &Value) -> Result<Value, String> {
    let choices = choices(field);
    if !choices.is_empty() && !choices.iter().any(|choice| choice == text) {
        return Err(format!("It is one of: {}.", choices.join(", ")));
    }
    match field.get("type").and_then(Value::as_str) {
        Some("integer") => match text.parse::<i64>() {
            Ok(number) => Ok(number.into()),
            Err(_) => Err("It is a whole number.".to_owned()),
        },
        Some("number") => match text.parse::<f64>() {
            Ok(number) => Ok(number.into()),
            Err(_) => Err("It is a number.".to_owned()),
        },
        Some("boolean") => match text {
            "y" | "yes" | "true" => Ok(true.into()),
            "n" | "no" | "false" => Ok(false.into()),
            _ => Err("It is y or n.".to_owned()),
        },
        _ => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_takes_what_fits_and_asks_again_for_the_rest() {
        let asked = QuestionAsked {
            id: "q".to_owned(),
            plugin: "p".to_owned(),
            call_id: None,
            message: "m".to_owned(),
            schema: Some(json!({ "properties": {
                "name": { "type": "string" },
                "count": { "type": "integer" },
                "color": { "type": "string", "enum": ["red", "blue"] },
            } })),
            url: None,
        };
        let mut form = QuestionForm::new(&asked);
        for answer in ["Ada", "many", "3", "green"] {
            assert_eq!(form.answer(answer), FormProgress::Goes);
        }
        let whole = json!({ "name": "Ada", "count": 3, "color": "red" });
        let whole = whole.as_object().unwrap().clone();
        assert_eq!(form.answer("red"), FormProgress::Whole(whole));
    }
}
