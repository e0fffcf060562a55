//! The form that the answers of a turn must have: one JSON value that fits a schema.
//!
//! Providers take schemas of objects. A value of another schema is asked for in a
//! [wrapper](super::answer_wrapper), and an answer that fits is taken out of it before it is in the log,
//! so that everything that reads the log has the value itself. Events of the text as it is written have the
//! wrapper.

use std::fmt;

use conjure_core::chat::{Content, FunctionCall, Part, Response};
use conjure_core::request::OutputFormat;
use conjure_core::routing::RouteRef;
use conjure_core::turn::{CallVerdict, Judge, TableJudge};
use jsonschema::Validator;
use serde_json::Value;

use super::answer_wrapper::{PROPERTY, unwrap_value, wrap_schema};
use super::repeated_name::repeated_name;
use crate::backend::ToolSnapshot;

/// What the form is called at providers.
const NAME: &str = "answer";
/// The most bytes of a schema: each request carries it.
const MOST_BYTES: usize = 64 * 1024;

/// A schema, read and ready to check answers.
#[derive(Debug)]
pub struct OutputForm {
    format: OutputFormat,
    /// Checks the answer, without a wrapper.
    validator: Validator,
    /// Whether the answer is asked for in a wrapper.
    is_wrapped: bool,
}

/// A schema that answers cannot be asked for by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOutputSchema {
    reason: String,
}

impl fmt::Display for BadOutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the schema of the answer cannot be used: {}",
            self.reason
        )
    }
}

impl std::error::Error for BadOutputSchema {}

impl OutputForm {
    /// Reads a JSON Schema, of whatever values.
    ///
    /// # Errors
    /// [`BadOutputSchema`] when it is none, fits nothing, refers to something outside itself, or is
    /// larger than 64 KiB.
    pub fn read(schema: &Value) -> Result<Self, BadOutputSchema> {
        let bad = |why: String| Err(BadOutputSchema { reason: why });
        if *schema == Value::Bool(false) {
            return bad("no value fits `false`".to_owned());
        }
        if schema.to_string().len() > MOST_BYTES {
            return bad(format!("it is larger than {} KiB", MOST_BYTES / 1024));
        }
        let options = jsonschema::options()
            .should_validate_formats(true)
            // In time that grows with the text, whatever the pattern.
            .with_pattern_options(jsonschema::PatternOptions::regex());
        let is_wrapped = schema.get("type").and_then(Value::as_str) != Some("object");
        match options.build(schema) {
            Ok(validator) => Ok(Self {
                format: OutputFormat {
                    name: NAME.to_owned(),
                    schema: match is_wrapped {
                        true => wrap_schema(schema),
                        false => schema.clone(),
                    },
                },
                validator,
                is_wrapped,
            }),
            Err(error) => bad(format!("{error} (at `{}`)", error.instance_path())),
        }
    }

    pub(super) fn format(&self) -> &OutputFormat {
        &self.format
    }

    /// What is wrong with an answer; nothing where it fits, in its wrapper or out of it.
    #[must_use]
    pub fn mismatch(&self, answer: &str) -> Option<String> {
        let value: Value = match serde_json::from_str(answer) {
            Ok(value) => value,
            Err(error) => return Some(format!("it is not JSON: {error}")),
        };
        let Some(error) = self.validator.iter_errors(&value).next() else {
            return repeated_name(answer);
        };
        if self.is_wrapped && value.is_object() {
            return self.wrapper_mismatch(answer);
        }
        let place = error.instance_path().to_string();
        let place = if place.is_empty() {
            "/".to_owned()
        } else {
            place
        };
        Some(format!("{error} (at `{place}`)"))
    }

    /// What is wrong with an object that is to be a wrapper. One that fits is one that
    /// [`OutputForm::unwrap_answer`] takes the answer out of.
    fn wrapper_mismatch(&self, object: &str) -> Option<String> {
        let text = unwrap_value(object).unwrap_or_default();
        let Ok(inner) = serde_json::from_str::<Value>(text) else {
            return Some(format!(
                "it is no object with `{PROPERTY}` once and nothing else"
            ));
        };
        let Some(error) = self.validator.iter_errors(&inner).next() else {
            return repeated_name(text);
        };
        let place = error.instance_path();
        Some(format!("{error} (at `/{PROPERTY}{place}`)"))
    }

    /// Takes the answer of a reply out of its wrapper, where the reply calls nothing and the answer
    /// fits.
    pub(super) fn unwrap_answer(&self, reply: &mut Response) {
        let calls = reply.parts.iter().any(|part| part.as_call().is_some());
        if !self.is_wrapped || calls {
            return;
        }
        let answer: String = reply.parts.iter().filter_map(Part::as_text).collect();
        let Some(value) = unwrap_value(&answer).filter(|value| self.fits(value)) else {
            return;
        };
        // The last text has what its provider signs the reply with.
        let mut texts = reply.parts.iter().filter_map(Part::as_text).count();
        reply.parts.retain_mut(|part| match &mut part.content {
            Content::Text { text } => {
                texts -= 1;
                if texts == 0 {
                    value.clone_into(text);
                }
                texts == 0
            }
            _ => true,
        });
    }

    fn fits(&self, text: &str) -> bool {
        let value: Result<Value, _> = serde_json::from_str(text);
        value.is_ok_and(|value| self.validator.is_valid(&value)) && repeated_name(text).is_none()
    }
}

/// A judge of calls that knows the form of the turn's answer too, and which plugins serve in the place
/// of those that the table names.
pub(super) struct TurnJudge<'a> {
    pub(super) calls: TableJudge<'a>,
    pub(super) snapshot: &'a ToolSnapshot,
    pub(super) form: Option<&'a OutputForm>,
}

impl Judge for TurnJudge<'_> {
    fn judge(&self, call: &FunctionCall) -> CallVerdict {
        self.calls.judge(call)
    }

    fn judge_route(&self, call: &FunctionCall) -> (CallVerdict, Option<RouteRef>) {
        let (mut verdict, route) = self.calls.judge_route(call);
        if let CallVerdict::Run { plugin, .. } | CallVerdict::Ask { plugin, .. } = &mut verdict
            && let Some(serving) = route.and_then(|route| self.snapshot.substitute_plugin(route))
        {
            *plugin = Some(serving);
        }
        (verdict, route)
    }

    fn backend(&self, tool: &str) -> Option<&str> {
        self.calls.backend(tool)
    }

    fn check_answer(&self, answer: &str) -> Option<String> {
        self.form?.mismatch(answer)
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::SessionSpec;
    use conjure_core::chat::Message;
    use conjure_core::log::EntryBody;
    use serde_json::json;

    use super::*;
    use crate::Host;

    #[test]
    fn an_answer_is_one_json_value_that_fits() {
        let form = OutputForm::read(&json!({
            "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } },
        }));
        let form = form.unwrap();
        assert_eq!(form.mismatch(" {\"n\": 3}\n"), None);
        for (answer, words) in [
            ("", "not JSON"),
            ("```json\n{\"n\": 3}\n```", "not JSON"),
            ("{\"n\": 3} and so on", "not JSON"),
            ("{}", "\"n\" is a required property (at `/`)"),
            ("{\"n\": \"3\"}", "is not of type \"integer\" (at `/n`)"),
            ("{\"n\": \"x\", \"n\": 3}", "`n` stands twice in one object"),
        ] {
            let wrong = form.mismatch(answer).unwrap();
            assert!(wrong.contains(words), "{answer}: {wrong}");
        }
    }

    fn reply(texts: &[&str]) -> Response {
        Response {
            id: None,
            model: String::new(),
            parts: texts.iter().map(|text| Part::text(*text)).collect(),
            ..Response::default()
        }
    }

    #[test]
    fn a_value_that_is_no_object_is_asked_for_in_one_and_taken_out_of_it() {
        let form = OutputForm::read(&json!({ "type": "array", "items": { "type": "integer" } }));
        let form = form.unwrap();
        assert_eq!(
            form.format().schema["properties"]["value"],
            json!({ "type": "array", "items": { "type": "integer" } })
        );
        let taken_out = |texts: &[&str]| {
            let mut reply = reply(texts);
            form.unwrap_answer(&mut reply);
            let texts = reply.parts.iter().filter_map(Part::as_text);
            texts.map(str::to_owned).collect::<Vec<_>>()
        };
        for (texts, answer) in [
            (&["{\"value\": [1, 2]}\n"][..], &["[1, 2]"][..]),
            (&["{\"value\":", " [3]}"], &["[3]"]),
            (&["[1, 2]"], &["[1, 2]"]),
            (&["{\"value\": [\"x\"]}"], &["{\"value\": [\"x\"]}"]),
        ] {
            assert_eq!(taken_out(texts), answer);
        }
        assert_eq!(form.mismatch("{\"value\": [1, 2]}"), None);
        assert_eq!(form.mismatch("[1, 2]"), None);
        for (answer, words) in [
            ("{\"value\": [\"x\"]}", "(at `/value/0`)"),
            ("{\"value\": 1}", "(at `/value`)"),
            (
                "{\"value\": [], \"\\u0076alue\": []}",
                "`value` once and nothing else",
            ),
            (
                "{\"value\": [], \"and\": 1}",
                "`value` once and nothing else",
            ),
            (
                "{\"value\": [1], \"value\": [2]}",
                "`value` once and nothing else",
            ),
            ("[\"x\"]", "(at `/0`)"),
            ("so", "not JSON"),
        ] {
            let wrong = form.mismatch(answer).unwrap();
            assert!(wrong.contains(words), "{answer}: {wrong}");
        }
    }

    #[tokio::test]
    async fn the_log_and_whoever_asked_have_the_value_without_its_wrapper() {
        let dir = tempfile::tempdir().unwrap();
        let said = ["{\"value\": [\"x\"]}", "{\"value\": [1, 2]}"];
        let script = json!({ "steps": said.map(|text| json!({ "text": text })) });
        std::fs::write(dir.path().join("script.json"), script.to_string()).unwrap();
        let host = Host::builder().data_dir(dir.path()).build().await.unwrap();
        let spec = SessionSpec {
            provider: Some("scripted".to_owned()),
            script: Some(dir.path().join("script.json")),
            ..SessionSpec::calls(&[], None)
        };
        let session = host.session(spec).await.unwrap();
        let schema = json!({ "type": "array", "items": { "type": "integer" } });
        let form = OutputForm::read(&schema).unwrap();
        session.answer_in_form(Some(form)).await;
        let answer = session.say(Message::user("Which?")).await.unwrap();
        assert_eq!(answer.text, "[1, 2]");
        let thread = session.thread().clone();
        session.close().await;
        let entries = host.entries(&thread).await.unwrap();
        let answers = entries.iter().filter_map(|entry| match &entry.body {
            EntryBody::Message { message } if message.meta.is_some() => Some(message.text()),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [said[0], "[1, 2]"]);
    }

    #[test]
    fn an_object_is_asked_for_as_it_is_and_stays_as_it_is() {
        let schema = json!({
            "type": "object", "required": ["value"], "properties": { "value": { "type": "integer" } },
        });
        let form = OutputForm::read(&schema).unwrap();
        assert_eq!(form.format().schema, schema);
        let mut whole = reply(&["{\"value\": 3}"]);
        form.unwrap_answer(&mut whole);
        assert_eq!(whole, reply(&["{\"value\": 3}"]));
        assert_eq!(form.mismatch("{\"value\": 3}"), None);
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        for (schema, words) in [
            (json!(false), "no value fits"),
            (json!([]), "cannot be used"),
            (
                json!({ "type": "object", "properties": { "a": { "type": "strin" } } }),
                "strin",
            ),
            (
                json!({ "type": "object", "properties": { "a": { "$ref": "https://x.example/a" } } }),
                "x.example",
            ),
            (
                json!({ "type": "object", "description": "x".repeat(MOST_BYTES) }),
                "64 KiB",
            ),
        ] {
            let error = OutputForm::read(&schema).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
