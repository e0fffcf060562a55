//! Mutations for the rules of Gemini.

use std::collections::BTreeSet;

use conjure_mock_llm::{Request, Rule, Wire, signature, validate, verify};
use serde_json::json;

use super::{Mutation, change, each_mutation_breaks_its_rule, push, remove, set, without};

const MODEL: &str = "gemini-3-pro-test";

/// A history with everything in it. Both model contents with calls belong to the turn that goes on.
fn legal() -> Request {
    let signed = |call: &str| signature(Wire::Gemini, MODEL, call);
    let call = |id: &str, name: &str| json!({"id": id, "name": name, "args": {}});
    let response = |id: &str, name: &str| json!({"functionResponse": {"id": id, "name": name, "response": {"output": "12:00"}}});
    let body = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "safetySettings": null,
        "generationConfig": {
            "maxOutputTokens": 100,
            "thinkingConfig": {"includeThoughts": true, "thinkingBudget": 512},
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT", "properties": {"time": {"type": "STRING"}}, "required": ["time"]},
        },
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["clock_read"]}},
        "tools": [
            {"codeExecution": null, "functionDeclarations": [
                {"name": "clock_read", "description": "", "parameters": {
                    "type": "object",
                    "properties": {
                        "zones": {"type": "array", "items": {"type": "string", "enum": ["UTC"]}},
                        "at": {"type": "string", "format": "date-time", "nullable": true},
                    },
                    "required": ["zones"],
                }},
                {"name": "bell.ring", "parametersJsonSchema": {"type": "object", "additionalProperties": false}},
                {"name": "no_parameters"},
            ]},
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "Hello"}]},
            {"role": "model", "parts": [{"text": "Hello."}, {"text": "", "thoughtSignature": signed("")}]},
            {"role": "user", "parts": [
                {"text": "What time is it?"},
                {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            ]},
            {"role": "model", "parts": [
                {"text": "hm", "thought": true},
                {"functionCall": call("1", "clock_read"), "thoughtSignature": signed("clock_read")},
                {"functionCall": call("2", "bell.ring")},
            ]},
            {"role": "user", "parts": [response("1", "clock_read"), response("2", "bell.ring")]},
            {"role": "model", "parts": [
                {"functionCall": call("3", "clock_read"), "thoughtSignature": "skip_thought_signature_validator"},
            ]},
            {"role": "user", "parts": [response("3", "clock_read")]},
        ],
    });
    Request::to(Wire::Gemini, MODEL, body)
}

#[test]
fn every_rule_has_a_mutation_that_breaks_it_alone() {
    each_mutation_breaks_its_rule(Wire::Gemini, &legal(), mutations());
}

#[test]
fn the_person_may_speak_right_behind_results() {
    let mut request = legal();
    let contents = request.body["contents"].as_array_mut().unwrap();
    contents.push(json!({"role": "user", "parts": [{"text": "And tomorrow?"}]}));
    assert_eq!(validate(Wire::Gemini, &request), []);
}

#[test]
fn w43_only_the_third_generation_wants_signatures_and_only_in_this_turn() {
    let mut second = legal();
    second.path = Wire::Gemini.path("gemini-2.5-flash");
    for content in second.body["contents"].as_array_mut().unwrap() {
        for part in content["parts"].as_array_mut().unwrap() {
            part.as_object_mut().unwrap().remove("thoughtSignature");
        }
    }
    second.body["contents"][1]["parts"]
        .as_array_mut()
        .unwrap()
        .pop();
    assert_eq!(validate(Wire::Gemini, &second), []);
    let mut later = second.clone();
    later.path = Wire::Gemini.path(MODEL);
    assert_eq!(validate(Wire::Gemini, &later).len(), 2);
    let contents = later.body["contents"].as_array_mut().unwrap();
    contents.push(json!({"role": "model", "parts": [{"text": "Noon."}]}));
    contents.push(json!({"role": "user", "parts": [{"text": "And tomorrow?"}]}));
    assert_eq!(validate(Wire::Gemini, &later), []);
}

#[test]
fn w43_the_placeholders_for_foreign_history_are_accepted() {
    for placeholder in [
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv",
    ] {
        let mut request = legal();
        request.body["contents"][3]["parts"][1]["thoughtSignature"] = json!(placeholder);
        assert_eq!(validate(Wire::Gemini, &request), []);
        assert_eq!(verify(Wire::Gemini, &request), []);
    }
}

#[test]
fn w54_what_the_subset_lacks_is_refused() {
    for (word, value) in [
        ("const", json!("UTC")),
        ("type", json!(["string", "null"])),
        ("propertyNames", json!({})),
        (
            "$schema",
            json!("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("additionalProperties", json!(false)),
        ("oneOf", json!([])),
        ("$ref", json!("#/$defs/zone")),
        ("format", json!("uri")),
        ("enum", json!([1, 2])),
    ] {
        let mut request = legal();
        request.body["tools"][0]["functionDeclarations"][0]["parameters"]["properties"]["at"]
            [word] = value;
        let broken: BTreeSet<Rule> = validate(Wire::Gemini, &request)
            .into_iter()
            .map(|violation| violation.rule)
            .collect();
        assert_eq!(broken, BTreeSet::from([Rule::ToolSchema]), "{word}");
    }
}

fn mutations() -> Vec<Mutation> {
    const PARAMETERS: &str = "/tools/0/functionDeclarations/0/parameters";
    let text = |text: &str| json!({"text": text});
    let call = json!({"functionCall": {"name": "clock_read", "args": {}}});
    vec![
        without(Rule::Authentication, "x-goog-api-key"),
        (Rule::Body, Box::new(|request| request.body = json!([]))),
        set(Rule::UnknownField, "/messages", json!([])),
        set(Rule::UnknownField, "/generationConfig/max_tokens", json!(7)),
        (
            Rule::Model,
            Box::new(|request| {
                request.path = Wire::Gemini.path("");
            }),
        ),
        set(
            Rule::MaxTokens,
            "/generationConfig/maxOutputTokens",
            json!(0),
        ),
        remove(Rule::Messages, "/contents"),
        set(Rule::Messages, "/contents", json!([])),
        set(Rule::System, "/systemInstruction/parts", json!([])),
        set(
            Rule::System,
            "/systemInstruction",
            json!({"text": "Be brief."}),
        ),
        set(Rule::Role, "/contents/0/role", json!("assistant")),
        remove(Rule::FirstIsUser, "/contents/0"),
        (
            Rule::Alternation,
            Box::new(|request| {
                let contents = request.body["contents"].as_array_mut().unwrap();
                contents.insert(2, json!({"role": "model", "parts": [{"text": "And you?"}]}));
            }),
        ),
        set(Rule::Content, "/contents/0/parts", json!([])),
        set(Rule::Block, "/contents/0/parts/0", json!({})),
        set(
            Rule::Block,
            "/contents/0/parts/0/functionCall",
            json!({"name": "clock_read"}),
        ),
        set(
            Rule::Block,
            "/contents/4/parts/0/functionResponse/response",
            json!("12:00"),
        ),
        remove(Rule::Block, "/contents/2/parts/1/inlineData/mimeType"),
        push(Rule::BlockRole, "/contents/0/parts", call),
        push(
            Rule::BlockRole,
            "/contents/1/parts",
            json!({"fileData": {"fileUri": "u"}}),
        ),
        set(
            Rule::BlockField,
            "/contents/0/parts/0/signature",
            json!("s"),
        ),
        set(
            Rule::BlockField,
            "/contents/3/parts/1/functionCall/call_id",
            json!("s"),
        ),
        set(Rule::BlockField, "/contents/0/content", json!("Hello")),
        set(Rule::EmptyText, "/contents/0/parts/0/text", json!("")),
        push(Rule::EmptyText, "/contents/1/parts", text(" ")),
        remove(Rule::Signature, "/contents/3/parts/1/thoughtSignature"),
        remove(Rule::Signature, "/contents/5/parts/0/thoughtSignature"),
        set(
            Rule::ThinkingBudget,
            "/generationConfig/thinkingConfig/thinkingLevel",
            json!("high"),
        ),
        set(
            Rule::ThinkingBudget,
            "/generationConfig/thinkingConfig/thinkingBudget",
            json!(-2),
        ),
        (
            Rule::ThinkingBudget,
            Box::new(|request| {
                // The signatures are of another model.
                request.body["contents"].as_array_mut().unwrap().truncate(1);
                request.path = Wire::Gemini.path("gemini-2.5-pro");
                request.body["generationConfig"]["thinkingConfig"]["thinkingBudget"] = json!(0);
            }),
        ),
        set(
            Rule::ToolName,
            "/tools/0/functionDeclarations/2/name",
            json!("7up"),
        ),
        change(Rule::ToolName, |body| {
            body["contents"][5]["parts"][0]["functionCall"]["name"] = json!("clock/read");
            body["contents"][6]["parts"][0]["functionResponse"]["name"] = json!("clock/read");
        }),
        set(
            Rule::ToolNameUnique,
            "/tools/0/functionDeclarations/2/name",
            json!("clock_read"),
        ),
        set(
            Rule::ToolSchema,
            concat!(
                "/tools/0/functionDeclarations/0/parameters",
                "/additionalProperties"
            ),
            json!(false),
        ),
        set(
            Rule::ToolSchema,
            concat!(
                "/tools/0/functionDeclarations/0/parameters",
                "/properties/zones/items/const"
            ),
            json!("UTC"),
        ),
        remove(
            Rule::ToolSchema,
            concat!(
                "/tools/0/functionDeclarations/0/parameters",
                "/properties/zones/items"
            ),
        ),
        set(
            Rule::ToolSchema,
            concat!("/tools/0/functionDeclarations/0/parameters", "/required"),
            json!(["nothing"]),
        ),
        set(
            Rule::ToolSchema,
            PARAMETERS,
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}),
        ),
        set(Rule::ToolSchema, PARAMETERS, json!({"type": "string"})),
        set(
            Rule::ToolSchema,
            "/tools/0/functionDeclarations/0/parametersJsonSchema",
            json!({"type": "object"}),
        ),
        set(
            Rule::ToolSchema,
            "/tools/0/functionDeclarations/1/parametersJsonSchema/type",
            json!("string"),
        ),
        set(Rule::Tools, "/tools/0/functions", json!([])),
        set(
            Rule::ToolChoice,
            "/toolConfig/functionCallingConfig/mode",
            json!("REQUIRED"),
        ),
        set(
            Rule::ToolChoice,
            "/toolConfig/functionCallingConfig/mode",
            json!("AUTO"),
        ),
        set(
            Rule::ToolChoice,
            "/toolConfig/functionCallingConfig/allowedFunctionNames",
            json!(["nobody"]),
        ),
        remove(Rule::ToolChoice, "/tools"),
        set(
            Rule::ToolInput,
            "/contents/3/parts/1/functionCall/args",
            json!("{}"),
        ),
        change(Rule::ToolIdUnique, |body| {
            body["contents"][5]["parts"][0]["functionCall"]["id"] = json!("1");
            body["contents"][6]["parts"][0]["functionResponse"]["id"] = json!("1");
        }),
        remove(Rule::ToolResultMissing, "/contents/6"),
        set(
            Rule::ToolResultMissing,
            "/contents/6/parts",
            json!([text("Go on.")]),
        ),
        change(Rule::ToolResultOrphan, |body| {
            let response = body["contents"][4]["parts"][0].clone();
            body["contents"][0]["parts"] = json!([response]);
        }),
        remove(Rule::ToolResultCount, "/contents/4/parts/1"),
        change(Rule::ToolResultCount, |body| {
            let again = body["contents"][4]["parts"][0].clone();
            body["contents"][4]["parts"]
                .as_array_mut()
                .unwrap()
                .push(again);
        }),
        change(Rule::ToolResultOrder, |body| {
            body["contents"][4]["parts"]
                .as_array_mut()
                .unwrap()
                .reverse();
        }),
        set(
            Rule::ToolResultOrder,
            "/contents/6/parts/0/functionResponse/id",
            json!("9"),
        ),
        remove(Rule::Format, "/generationConfig/responseMimeType"),
        set(
            Rule::Format,
            "/generationConfig/responseJsonSchema",
            json!({}),
        ),
        set(
            Rule::Format,
            "/generationConfig/responseSchema/properties/time/const",
            json!("noon"),
        ),
        set(
            Rule::ForeignSidecar,
            "/contents/1/parts/1/thoughtSignature",
            json!(signature(Wire::Gemini, "gemini-2.5-flash", "")),
        ),
        set(
            Rule::EditedSidecar,
            "/contents/3/parts/1/thoughtSignature",
            json!(signature(Wire::Gemini, MODEL, "bell.ring")),
        ),
        set(
            Rule::ForeignSidecar,
            "/contents/3/parts/1/thoughtSignature",
            json!("c2lnbmF0dXJl"),
        ),
    ]
}
