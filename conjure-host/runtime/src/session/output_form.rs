//! The form that the answers of a turn must have: one JSON value that fits a schema.

use std::fmt;

use conjure_core::chat::FunctionCall;
use conjure_core::request::OutputFormat;
use conjure_core::routing::RouteRef;
use conjure_core::turn::{CallVerdict, Judge, TableJudge};
use jsonschema::Validator;
use serde_json::Value;

/// What the form is called at providers.
const NAME: &str = "answer";
/// The most bytes of a schema: each request carries it.
const MOST_BYTES: usize = 64 * 1024;

/// A schema, read and ready to check answers.
#[derive(Debug)]
pub struct OutputForm {
    format: OutputFormat,
    validator: Validator,
}

/// A schema that answers cannot be asked for by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOutputSchema {
    why: String,
}

impl fmt::Display for BadOutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the schema of the answer cannot be used: {}", self.why)
    }
}

impl std::error::Error for BadOutputSchema {}

impl OutputForm {
    /// Reads a JSON Schema, which is of an object at its top.
    ///
    /// # Errors
    /// [`BadOutputSchema`] when it is none, refers to something outside itself, or is larger than
    /// 64 KiB.
    pub fn read(schema: &Value) -> Result<Self, BadOutputSchema> {
        let bad = |why: String| Err(BadOutputSchema { why });
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return bad(
                "providers take an object at its top: `{\"type\": \"object\", \"properties\": …}`; put \
                 anything else into a field of one"
                    .to_owned(),
            );
        }
        if schema.to_string().len() > MOST_BYTES {
            return bad(format!("it is larger than {} KiB", MOST_BYTES / 1024));
        }
        let options = jsonschema::options()
            .should_validate_formats(true)
            // In time that grows with the text, whatever the pattern.
            .with_pattern_options(jsonschema::PatternOptions::regex());
        match options.build(schema) {
            Ok(validator) => Ok(Self {
                format: OutputFormat {
                    name: NAME.to_owned(),
                    schema: schema.clone(),
                },
                validator,
            }),
            Err(error) => bad(format!("{error} (at `{}`)", error.instance_path())),
        }
    }

    pub(super) fn format(&self) -> &OutputFormat {
        &self.format
    }

    /// What is wrong with an answer; nothing where it fits.
    #[must_use]
    pub fn unfit(&self, answer: &str) -> Option<String> {
        let value: Value = match serde_json::from_str(answer) {
            Ok(value) => value,
            Err(error) => return Some(format!("it is not JSON: {error}")),
        };
        let error = self.validator.iter_errors(&value).next()?;
        let place = error.instance_path().to_string();
        let place = if place.is_empty() {
            "/".to_owned()
        } else {
            place
        };
        Some(format!("{error} (at `{place}`)"))
    }
}

/// A judge of calls that knows the form of the turn's answer too.
pub(super) struct TurnJudge<'a> {
    pub(super) calls: TableJudge<'a>,
    pub(super) form: Option<&'a OutputForm>,
}

impl Judge for TurnJudge<'_> {
    fn judge(&self, call: &FunctionCall) -> CallVerdict {
        self.calls.judge(call)
    }

    fn judge_route(&self, call: &FunctionCall) -> (CallVerdict, Option<RouteRef>) {
        self.calls.judge_route(call)
    }

    fn backend(&self, tool: &str) -> Option<&str> {
        self.calls.backend(tool)
    }

    fn unfit(&self, answer: &str) -> Option<String> {
        self.form?.unfit(answer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_one_json_value_that_fits() {
        let form = OutputForm::read(&json!({
            "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } },
        }));
        let form = form.unwrap();
        assert_eq!(form.unfit(" {\"n\": 3}\n"), None);
        for (answer, words) in [
            ("", "not JSON"),
            ("```json\n{\"n\": 3}\n```", "not JSON"),
            ("{\"n\": 3} and so on", "not JSON"),
            ("{}", "\"n\" is a required property (at `/`)"),
            ("{\"n\": \"3\"}", "is not of type \"integer\" (at `/n`)"),
        ] {
            let wrong = form.unfit(answer).unwrap();
            assert!(wrong.contains(words), "{answer}: {wrong}");
        }
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        for (schema, words) in [
            (json!({ "type": "array" }), "object at its top"),
            (json!(true), "object at its top"),
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
