//! What `generateContent` refuses.

use serde_json::Value;

use super::{Broken, is_blank, is_legal, list};

pub(super) fn check(body: &Value, model: &str, broken: &mut Broken) {
    let contents = list(body, "contents");
    // Recorded requests leave the role of a user out at times.
    let by_user = |content: &Value| content["role"] != "model";
    broken.rule(
        "begins with the user",
        contents.first().is_some_and(by_user),
    );
    broken.rule("ends with the user", contents.last().is_some_and(by_user));
    let signs = model.starts_with("gemini-3");
    let mut owed: Vec<&Value> = Vec::new();
    let mut before = true;
    for content in contents {
        let user = by_user(content);
        let known = matches!(content["role"].as_str(), None | Some("user" | "model"));
        broken.rule("known roles", known);
        broken.rule("the model does not speak twice", user || before);
        before = user;
        let parts = list(content, "parts");
        broken.rule("no empty content", !parts.is_empty());
        let of = |kind: &str| -> Vec<&Value> {
            parts
                .iter()
                .map(|part| &part[kind])
                .filter(|part| part.is_object())
                .collect()
        };
        let (calls, responses) = (of("functionCall"), of("functionResponse"));
        let fits = owed.len() == responses.len();
        broken.rule("as many responses as calls", fits);
        let mut names: Vec<&Value> = owed.iter().map(|call| &call["name"]).collect();
        names.retain(|name| !responses.iter().any(|response| response["name"] == **name));
        broken.rule("responses name their calls", !fits || names.is_empty());
        for (call, response) in owed.iter().zip(&responses) {
            let same = call.get("id").is_none() || call.get("id") == response.get("id");
            broken.rule("real ids go back", same);
        }
        broken.rule("calls are the model's", !user || calls.is_empty());
        for call in &calls {
            broken.rule("legal names", is_legal(&call["name"], 64));
            broken.rule("arguments are an object", call["args"].is_object());
        }
        for response in &responses {
            broken.rule("a response is an object", response["response"].is_object());
        }
        let first = parts.iter().find(|part| part["functionCall"].is_object());
        let signed = first.is_none_or(|part| !is_blank(&part["thoughtSignature"]));
        broken.rule("the first call is signed", signed || !signs);
        for part in parts {
            let signed = !is_blank(&part["thoughtSignature"]);
            let says = part
                .get("text")
                .is_none_or(|text| text.as_str() != Some(""));
            broken.rule("no empty text", says || signed);
        }
        owed = calls;
    }
    broken.rule("as many responses as calls", owed.is_empty());
}
