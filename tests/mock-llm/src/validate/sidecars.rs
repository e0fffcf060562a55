//! Whether what a request says to be the provider's own is: signatures, encrypted reasoning, ids.
//!
//! A real provider knows its own by its key. The mock knows those that it makes by what is in them
//! (`mint`), and those that a script gives by having sent them.

use serde_json::Value;

use super::{Findings, Rule, Violation, non_null, text};
use crate::mint::{self, Origin};
use crate::request::{Request, array};
use crate::wire::Wire;

/// What Gemini's documentation gives for history of other models, and what recorded clients send for
/// it; each also as base64.
const PLACEHOLDERS: [&str; 4] = [
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
    "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
    "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
];

/// The rules that are judged here.
pub(super) fn rules(wire: Wire) -> &'static [Rule] {
    match wire {
        Wire::Anthropic => &[Rule::ForeignSidecar, Rule::EditedSidecar],
        Wire::Responses => &[
            Rule::ForeignSidecar,
            Rule::UnknownItem,
            Rule::ReasoningDropped,
        ],
        Wire::Chat => &[Rule::ForeignSidecar],
        Wire::Gemini => &[Rule::ForeignSidecar, Rule::EditedSidecar],
    }
}

/// Everything in a request that says to be the provider's own, for this model, and that no mock made.
/// A mock makes what it is not given: [`crate::Message::reasoning`], [`crate::signature`].
#[must_use]
pub fn verify(wire: Wire, request: &Request) -> Vec<Violation> {
    verify_with(wire, request, &|_, _| None)
}

/// As [`verify`], where `given` knows those that scripts gave by hand: signature and signed text in,
/// where it comes from out.
pub(crate) fn verify_with(
    wire: Wire,
    request: &Request,
    given: &dyn Fn(&str, &str) -> Option<Origin>,
) -> Vec<Violation> {
    let mut judge = Judge {
        wire,
        model: request.model(),
        issued: given,
        findings: Findings::new(request),
    };
    match wire {
        Wire::Anthropic => judge.anthropic(request),
        Wire::Responses => judge.responses(request),
        Wire::Chat => judge.chat(request),
        Wire::Gemini => judge.gemini(request),
    }
    judge.findings.violations
}

struct Judge<'a> {
    wire: Wire,
    model: &'a str,
    issued: &'a dyn Fn(&str, &str) -> Option<Origin>,
    findings: Findings,
}

impl Judge<'_> {
    /// A request that names no model is refused for that.
    fn origin(&self, signature: &str, signed: Option<&str>) -> Origin {
        if self.model.is_empty() {
            return Origin::Own;
        }
        (self.issued)(signature, signed.unwrap_or_default())
            .unwrap_or_else(|| mint::origin(self.wire, self.model, signature, signed))
    }

    fn anthropic(&mut self, request: &Request) {
        for (number, message) in request.messages().iter().enumerate() {
            for (at, block) in array(message, "content").iter().enumerate() {
                let place = format!("messages.{number}.content.{at}");
                let (field, signed) = match text(block, "type") {
                    "thinking" => ("signature", Some(text(block, "thinking"))),
                    "redacted_thinking" => ("data", None),
                    _ => continue,
                };
                // One that is not there is another rule's affair.
                if text(block, field).is_empty() {
                    continue;
                }
                match self.origin(text(block, field), signed) {
                    Origin::Own => {}
                    Origin::Edited => self.findings.add(
                        Rule::EditedSidecar,
                        place,
                        "`thinking` or `redacted_thinking` blocks in the latest assistant message \
                         cannot be modified. These blocks must remain as they were in the original \
                         response.",
                    ),
                    Origin::Foreign => self.findings.add(
                        Rule::ForeignSidecar,
                        place,
                        format_args!("Invalid `{field}` in `{}` block", text(block, "type")),
                    ),
                }
            }
        }
    }

    fn responses(&mut self, request: &Request) {
        let mut before: Option<&Value> = None;
        for (number, item) in request.messages().iter().enumerate() {
            let place = format!("input[{number}]");
            let id = text(item, "id");
            match text(item, "type") {
                "reasoning" => self.encrypted(&place, item, "encrypted_content"),
                "compaction" => self.encrypted(&place, item, "encrypted_content"),
                "item_reference" => self.check_own_id(&place, id),
                _ => {
                    let reasoning = before
                        .filter(|before| text(before, "type") == "reasoning")
                        .and_then(|before| non_null(before, "id")?.as_str());
                    let resent = non_null(&request.body, "previous_response_id").is_none();
                    self.findings.check(
                        !resent || mint::follows(id, reasoning) != Some(false),
                        Rule::ReasoningDropped,
                        &place,
                        format_args!(
                            "Item '{id}' of type '{}' was provided without its required \
                             'reasoning' item.",
                            text(item, "type")
                        ),
                    );
                }
            }
            before = Some(item);
        }
        if let Some(id) = non_null(&request.body, "previous_response_id").and_then(Value::as_str) {
            self.check_own_id("previous_response_id", id);
        }
    }

    fn check_own_id(&mut self, place: &str, id: &str) {
        let own = mint::is_own_id(id) || self.origin(id, None) == Origin::Own;
        self.findings.check(
            own,
            Rule::UnknownItem,
            place,
            format_args!("Item with id '{id}' not found."),
        );
    }

    fn encrypted(&mut self, place: &str, item: &Value, field: &str) {
        let Some(data) = non_null(item, field) else {
            return;
        };
        let data = data.as_str().unwrap_or_default();
        let shown = (data.get(..4).unwrap_or_default(), data.chars().count());
        let own = self.origin(data, None) == Origin::Own;
        self.findings.check(
            own,
            Rule::ForeignSidecar,
            place,
            format_args!(
                "The encrypted content {}... ({} characters) could not be verified. Reason: Encrypted \
                 content could not be decrypted or parsed.",
                shown.0, shown.1
            ),
        );
    }

    fn chat(&mut self, request: &Request) {
        for (number, message) in request.messages().iter().enumerate() {
            for (at, detail) in array(message, "reasoning_details").iter().enumerate() {
                let place = format!("messages[{number}].reasoning_details[{at}]");
                for field in ["data", "signature"] {
                    self.encrypted(&place, detail, field);
                }
            }
        }
    }

    fn gemini(&mut self, request: &Request) {
        for (number, content) in request.messages().iter().enumerate() {
            for (at, part) in array(content, "parts").iter().enumerate() {
                let Some(signature) = non_null(part, "thoughtSignature") else {
                    continue;
                };
                let signature = signature.as_str().unwrap_or_default();
                if PLACEHOLDERS.contains(&signature) {
                    continue;
                }
                let call = non_null(part, "functionCall").map_or("", |call| text(call, "name"));
                let rule = match self.origin(signature, Some(call)) {
                    Origin::Own => continue,
                    Origin::Edited => Rule::EditedSidecar,
                    Origin::Foreign => Rule::ForeignSidecar,
                };
                self.findings.add(
                    rule,
                    format_args!("contents[{number}].parts[{at}]"),
                    "Corrupted thought signature.",
                );
            }
        }
    }
}
