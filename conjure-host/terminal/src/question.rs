//! A question of a plugin or a server: a form, filled in field by field.

mod choice;
mod field;
mod format;
mod limit;

use conjure_core::chat::QuestionAsked;
use serde_json::{Map, Value};

pub use self::field::{FieldAnswer, FormField, yes_or_no};
use crate::text::{Color, Line, Style};

/// What declines a question where it is typed as an answer.
pub const DECLINE: &str = "/decline";

/// The most lines of choices that are redrawn with what is typed. A longer list is told once, where
/// it stays.
const MAX_CHOICE_LINES: usize = 6;

/// A form that is being filled in.
#[derive(Debug)]
pub(crate) struct QuestionForm {
    pub(crate) id: String,
    /// Fields that are still to be filled in, the next one last.
    fields: Vec<FormField>,
    content: Map<String, Value>,
    /// What was wrong with the last answer.
    wrong: Option<String>,
}

/// How far a form is after an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FormProgress {
    /// Something is still to be filled in.
    Incomplete,
    /// The whole form.
    Complete(Map<String, Value>),
    /// The person does not want to.
    Declined,
}

impl QuestionForm {
    pub(crate) fn new(asked: &QuestionAsked) -> Self {
        let fields = FormField::all(asked.schema.as_ref());
        Self {
            id: asked.id.clone(),
            fields: fields.into_iter().rev().collect(),
            content: Map::new(),
            wrong: None,
        }
    }

    /// What is asked now, and what can be typed.
    pub(crate) fn render(&self, columns: usize) -> Vec<Line> {
        let mut lines = match self.fields.last() {
            Some(field) => field_lines(field, columns),
            None => {
                let hint = "y for yes, n for no; Esc declines";
                vec![Line::of(hint, Style::DIM).truncate(columns)]
            }
        };
        if let Some(wrong) = &self.wrong {
            lines.push(Line::of(wrong, Style::of(Color::Yellow)).truncate(columns));
        }
        lines
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, text: &str) -> FormProgress {
        self.wrong = None;
        if text.trim() == DECLINE {
            return FormProgress::Declined;
        }
        let Some(field) = self.fields.last() else {
            return self.agree(text);
        };
        match field.parse_answer(text) {
            FieldAnswer::Value(value) => {
                self.content.insert(field.name().to_owned(), value);
            }
            FieldAnswer::Omitted => {}
            FieldAnswer::Invalid(problem) => {
                self.wrong = Some(problem);
                return FormProgress::Incomplete;
            }
        }
        self.fields.pop();
        if self.fields.is_empty() {
            FormProgress::Complete(std::mem::take(&mut self.content))
        } else {
            FormProgress::Incomplete
        }
    }

    /// Takes an answer to a question without fields.
    fn agree(&mut self, text: &str) -> FormProgress {
        match yes_or_no(text) {
            Some(true) => FormProgress::Complete(std::mem::take(&mut self.content)),
            Some(false) => FormProgress::Declined,
            None => {
                self.wrong = Some("That is no answer: y or n.".to_owned());
                FormProgress::Incomplete
            }
        }
    }
}

/// A field that is asked for, with what it takes.
fn field_lines(field: &FormField, columns: usize) -> Vec<Line> {
    let mut head = name_line(field);
    let about = field.about();
    if !about.is_empty() {
        head.push(format!("  {about}"), Style::PLAIN);
    }
    let mut lines = vec![head.truncate(columns)];
    let choices = choice_lines(field, columns);
    let is_told_above = choices.len() > MAX_CHOICE_LINES;
    if !is_told_above {
        lines.extend(choices);
    }
    let place = if is_told_above { " (above)" } else { "" };
    let hint = format!("{}{place}; Esc declines", field.rule());
    let indent = Line::new();
    lines.extend(Line::of(hint, Style::DIM).wrap(columns, &indent, &indent));
    lines
}

fn name_line(field: &FormField) -> Line {
    Line::of(field.name(), Style::of(Color::Yellow).bold())
}

/// The values that a field may have; no line where it is no choice.
fn choice_lines(field: &FormField, columns: usize) -> Vec<Line> {
    let choices = field.choices();
    if choices.is_empty() {
        return Vec::new();
    }
    let indent = Line::of("  ", Style::PLAIN);
    Line::of(choices.join("  "), Style::PLAIN).wrap(columns, &indent, &indent)
}

/// What is asked, as it stays on the terminal.
pub(crate) fn question_lines(asked: &QuestionAsked, columns: usize) -> Vec<Line> {
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
    for field in FormField::all(asked.schema.as_ref()) {
        let choices = choice_lines(&field, columns);
        if choices.len() > MAX_CHOICE_LINES {
            lines.push(name_line(&field).truncate(columns));
            lines.extend(choices);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(schema: Option<Value>) -> QuestionAsked {
        QuestionAsked {
            id: "q".to_owned(),
            plugin: "p".to_owned(),
            call_id: None,
            message: "m".to_owned(),
            schema,
            url: None,
        }
    }

    fn whole(content: &Value) -> FormProgress {
        FormProgress::Complete(content.as_object().unwrap().clone())
    }

    fn shown(lines: &[Line]) -> String {
        let lines: Vec<String> = lines.iter().map(Line::plain).collect();
        lines.join("\n")
    }

    #[test]
    fn a_form_takes_what_fits_and_asks_again_for_the_rest() {
        let mut form = QuestionForm::new(&asked(Some(json!({ "properties": {
            "name": { "type": "string" },
            "count": { "type": "integer" },
            "color": { "type": "string", "enum": ["red", "blue"] },
        } }))));
        for answer in ["Ada", "many", "3", "green"] {
            assert_eq!(form.answer(answer), FormProgress::Incomplete);
        }
        let filled = json!({ "name": "Ada", "count": 3, "color": "red" });
        assert_eq!(form.answer("red"), whole(&filled));
    }

    #[test]
    fn enter_leaves_an_optional_field_out_or_takes_its_default() {
        let mut form = QuestionForm::new(&asked(Some(json!({
            "required": ["name"],
            "properties": {
                "name": { "type": "string" },
                "guests": { "type": "integer", "default": 2 },
                "pets": { "type": "boolean" },
                "meal": { "enum": ["a", "b"], "enumNames": ["Apple", "Bread"] },
            },
        }))));
        assert_eq!(form.answer(""), FormProgress::Incomplete);
        assert!(shown(&form.render(80)).contains("It is needed."));
        assert_eq!(form.answer("Ada"), FormProgress::Incomplete);
        let guests = "guests\na whole number, optional, [2]; Esc declines";
        assert_eq!(shown(&form.render(80)), guests);
        assert_eq!(form.answer(""), FormProgress::Incomplete);
        assert_eq!(form.answer(""), FormProgress::Incomplete);
        let meal =
            "meal\n  1. a (Apple)  2. b (Bread)\none of those listed, optional; Esc declines";
        assert_eq!(shown(&form.render(80)), meal);
        assert_eq!(
            form.answer(""),
            whole(&json!({ "name": "Ada", "guests": 2 }))
        );
    }

    #[test]
    fn a_question_is_declined_by_what_is_typed() {
        let mut form = QuestionForm::new(&asked(Some(json!({
            "properties": { "name": { "type": "string" } },
        }))));
        assert_eq!(form.answer(" /decline "), FormProgress::Declined);
        let mut page = QuestionForm::new(&asked(None));
        assert_eq!(page.answer("x"), FormProgress::Incomplete);
        assert_eq!(page.answer("No"), FormProgress::Declined);
        let mut page = QuestionForm::new(&asked(None));
        assert_eq!(page.answer("yes"), whole(&json!({})));
    }

    #[test]
    fn a_long_list_of_choices_stands_where_it_stays() {
        let values: Vec<String> = (0..100).map(|at| format!("value-{at}")).collect();
        let schema = json!({ "properties": { "it": { "enum": values } } });
        let asked = asked(Some(schema));
        assert!(shown(&question_lines(&asked, 80)).contains("value-99"));
        let form = QuestionForm::new(&asked);
        assert_eq!(
            shown(&form.render(80)),
            "it\none of those listed, optional (above); Esc declines"
        );
    }
}
