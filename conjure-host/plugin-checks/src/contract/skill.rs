//! What a skill does: its tools refuse arguments that their schema does not allow.

use conjure_skill_sdk::protocol::{Manifest, ToolDecl, ToolResult};
use serde_json::{Value, json};

use super::bench::{Bench, BenchSession, Broken, CheckResult, refused, short};
use super::{CheckKind, ContractCheck};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SkillCheck {
    /// The tool at this place of the manifest.
    Arguments(usize),
}

pub(super) fn checks(manifest: &Manifest) -> Vec<ContractCheck> {
    let tools = manifest.tools.iter().enumerate();
    let strict = tools.filter(|(_, tool)| !misfits(&tool.input_schema).is_empty());
    strict
        .map(|(place, tool)| {
            let name = format!(
                "`{}` refuses arguments that do not fit its schema",
                tool.name
            );
            ContractCheck::new(name, CheckKind::Skill(SkillCheck::Arguments(place)))
        })
        .collect()
}

pub(super) async fn run(check: &SkillCheck, bench: &Bench) -> CheckResult {
    let SkillCheck::Arguments(place) = check;
    let manifest = bench.plugin.manifest();
    let Some(tool) = manifest.tools.get(*place) else {
        return Ok(());
    };
    let session = bench.session(false);
    for arguments in misfits(&tool.input_schema) {
        refuses(&session, tool, &tool.op, &arguments, &arguments).await?;
    }
    Ok(())
}

/// Checks that a tool answers these arguments with an error result or a fault.
pub(super) async fn refuses(
    session: &BenchSession<'_>,
    tool: &ToolDecl,
    op: &str,
    body: &Value,
    arguments: &Value,
) -> CheckResult {
    let expected = format!(
        "an error result of `{}` for the arguments {}",
        tool.name,
        short(arguments)
    );
    match session.ask::<ToolResult>(op, body).await {
        Ok(result) if result.is_error => Ok(()),
        Ok(result) => Err(Broken::new(expected, short(&result.joined_text()))),
        Err(failure) => refused(failure, &expected).map(drop),
    }
}

/// Arguments that a schema does not allow: none at all where some are required, and each of those as
/// what it is not.
pub(super) fn misfits(schema: &Value) -> Vec<Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if required.is_empty() {
        return Vec::new();
    }
    let mut misfits = vec![json!({})];
    for name in required {
        let property = schema.get("properties").and_then(|all| all.get(name));
        let kind = property.and_then(|property| property.get("type"));
        let wrong = match kind.and_then(Value::as_str) {
            Some("string") => json!(7),
            Some("integer" | "number" | "boolean" | "array") => json!({}),
            Some("object") => json!("text"),
            _ => continue,
        };
        misfits.push(json!({ name: wrong }));
    }
    misfits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_do_not_fit_follow_from_the_schema() {
        let schema = json!({
            "properties": { "a": { "type": "string" }, "b": { "type": "object" }, "c": {} },
            "required": ["a", "b", "c"],
        });
        assert_eq!(
            misfits(&schema),
            [json!({}), json!({ "a": 7 }), json!({ "b": "text" })]
        );
        assert!(misfits(&json!({ "properties": { "a": { "type": "string" } } })).is_empty());
    }
}
