//! What a server behind the host answered, for the client to get word for word.
//!
//! A plugin that is an MCP client keeps the answer beside what it makes of it: in `meta`, or, when
//! it is large, in a file of the exchange directory. What a model would read of the same answer is
//! another thing, and is not made here.

use std::path::Path;

use rmcp::model::{ErrorCode, ErrorData};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::passthrough::passthrough_key;
use super::results;
use conjure_runtime::artifacts::Artifacts;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// An answer.
#[derive(Debug, PartialEq)]
pub(super) enum RawAnswer {
    Result(Value),
    Error(ErrorData),
}

/// The kind of request that an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Call,
    Read,
    Prompt,
}

/// The answer in the data beside a plugin's own, if there is one that can be read.
pub(super) fn answer(meta: Option<&Map<String, Value>>, files: &Artifacts) -> Option<RawAnswer> {
    let meta = meta?;
    if let Some(error) = meta.get("mcp_error") {
        return Some(RawAnswer::Error(error_of(error)?));
    }
    if let Some(path) = meta.get("mcp_result_file").and_then(Value::as_str) {
        return read_answer_file(Path::new(path), files)
            .inspect_err(|why| tracing::warn!("an answer in the file {path} is lost: {why}"))
            .map(RawAnswer::Result)
            .ok();
    }
    meta.get("mcp_result").cloned().map(RawAnswer::Result)
}

fn error_of(error: &Value) -> Option<ErrorData> {
    let code = i32::try_from(error.get("code")?.as_i64()?).ok()?;
    let message = error.get("message").and_then(Value::as_str);
    Some(ErrorData::new(
        ErrorCode(code),
        message.unwrap_or_default().to_owned(),
        error.get("data").cloned(),
    ))
}

/// Reads a large answer, which is nobody's any more then.
fn read_answer_file(path: &Path, files: &Artifacts) -> Result<Value, String> {
    let found = path.symlink_metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no file of the session".to_owned());
    }
    let opened = files.open_inside(path)?;
    let bytes = opened
        .bytes(MAX_ANSWER_BYTES)
        .map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("it has more than {MAX_ANSWER_BYTES} bytes"))?;
    conjure_config::fs::remove_no_follow(&opened.path);
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

/// The answer as a value of the SDK's, which has no place for what it does not know: it travels
/// in there as a whole and takes the place of its rest where it goes out.
///
/// # Errors
/// The server's, word for word; or that its answer is none of MCP's.
pub(super) fn sdk_value<T: DeserializeOwned>(
    answer: RawAnswer,
    kind: AnswerKind,
    modern: bool,
) -> Result<T, ErrorData> {
    let mut whole = match answer {
        RawAnswer::Result(Value::Object(whole)) => whole,
        RawAnswer::Result(_) => {
            let text = "the server behind answered with something that is no object, so it is no \
                        result of MCP's; tell whoever makes that server";
            return Err(ErrorData::internal_error(text, None));
        }
        RawAnswer::Error(error) => return Err(error),
    };
    adapt_to_era(&mut whole, kind, modern);
    let content = match kind {
        AnswerKind::Call => "content",
        AnswerKind::Read => "contents",
        AnswerKind::Prompt => "messages",
    };
    let key = passthrough_key();
    let packed = json!({ content: [], "_meta": { key: whole } });
    results::typed(packed)
        .ok_or_else(|| ErrorData::internal_error("an answer cannot be packed; this is a bug", None))
}

/// What each era demands of a result beside what a server of the other one says.
fn adapt_to_era(result: &mut Map<String, Value>, kind: AnswerKind, modern: bool) {
    if modern {
        let complete = || "complete".into();
        result
            .entry("resultType".to_owned())
            .or_insert_with(complete);
        if kind == AnswerKind::Read {
            result.entry("ttlMs".to_owned()).or_insert(0.into());
            let scope = result.entry("cacheScope".to_owned());
            scope.or_insert("private".into());
        }
        return;
    }
    let is_newer = result.shift_remove("resultType").is_some();
    // Clients of the older era refuse a result over it.
    let structured = result.get("structuredContent");
    if is_newer && structured.is_some_and(|value| !value.is_object() && !value.is_null()) {
        result.shift_remove("structuredContent");
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, GetPromptResult, ReadResourceResult};

    use super::*;

    fn files(dir: &Path) -> Artifacts {
        Artifacts::new(vec![dir.to_owned()], dir.join("cache"))
    }

    fn in_meta(meta: &Value, dir: &Path) -> Option<RawAnswer> {
        answer(meta.as_object(), &files(dir))
    }

    #[test]
    fn an_answer_is_read_from_where_the_plugin_kept_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let whole = json!({ "content": [], "vendor": 1 });
        let result = Some(RawAnswer::Result(whole.clone()));
        assert_eq!(in_meta(&json!({ "mcp_result": whole }), &dir), result);
        let path = dir.join("large");
        std::fs::write(&path, whole.to_string()).unwrap();
        assert_eq!(in_meta(&json!({ "mcp_result_file": path }), &dir), result);
        assert!(!path.exists(), "nobody needs it any more");
        let error = json!({ "code": -32602, "message": "no", "data": { "k": 1 } });
        let expected = ErrorData::new(ErrorCode(-32602), "no", Some(json!({ "k": 1 })));
        assert_eq!(
            in_meta(&json!({ "mcp_error": error }), &dir),
            Some(RawAnswer::Error(expected))
        );
        assert_eq!(in_meta(&json!({ "other": 1 }), &dir), None);
    }

    #[test]
    fn a_file_elsewhere_is_not_read() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = other.path().canonicalize().unwrap().join("f");
        std::fs::write(&path, "{}").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            let meta = json!({ "mcp_result_file": path });
            assert_eq!(in_meta(&meta, dir.path()), None, "{}", path.display());
        }
        assert!(path.exists());
    }

    #[test]
    fn each_kind_of_result_has_a_place_for_the_whole() {
        fn whole<T: DeserializeOwned + serde::Serialize>(kind: AnswerKind) -> Value {
            let answer = RawAnswer::Result(json!({ "odd": [1.0, 1], "content": "none" }));
            let packed: T = sdk_value(answer, kind, false).unwrap();
            serde_json::to_value(packed).unwrap()["_meta"][passthrough_key()].clone()
        }
        let expected = json!({ "odd": [1.0, 1], "content": "none" }).to_string();
        assert_eq!(
            whole::<CallToolResult>(AnswerKind::Call).to_string(),
            expected
        );
        assert_eq!(
            whole::<ReadResourceResult>(AnswerKind::Read).to_string(),
            expected
        );
        assert_eq!(
            whole::<GetPromptResult>(AnswerKind::Prompt).to_string(),
            expected
        );
    }

    #[test]
    fn an_answer_that_is_no_object_is_refused() {
        for odd in [json!("text"), json!([1]), Value::Null] {
            let refused =
                sdk_value::<CallToolResult>(RawAnswer::Result(odd), AnswerKind::Call, true);
            let message = refused.unwrap_err().message;
            assert!(message.contains("is no object"), "{message}");
        }
    }

    #[test]
    fn between_the_eras_only_what_an_era_demands_is_another() {
        let changed = |result: Value, kind, modern| {
            let mut fields = result.as_object().unwrap().clone();
            adapt_to_era(&mut fields, kind, modern);
            Value::Object(fields)
        };
        assert_eq!(
            changed(json!({ "contents": [] }), AnswerKind::Read, true),
            json!({ "contents": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private" })
        );
        let cached = json!({ "resultType": "complete", "ttlMs": 5, "cacheScope": "public" });
        assert_eq!(changed(cached.clone(), AnswerKind::Read, true), cached);
        let list = json!({ "resultType": "complete", "structuredContent": [1] });
        assert_eq!(changed(list, AnswerKind::Call, false), json!({}));
        let odd = json!({ "structuredContent": [1], "content": [] });
        assert_eq!(changed(odd.clone(), AnswerKind::Call, false), odd);
    }
}
