//! What a skill does: its tools refuse arguments that their schema does not allow, and those that it has
//! at run time only are listed.

use conjure_skill_sdk::protocol::{Empty, Manifest, SkillTools, ToolDecl, ToolResult, op};
use serde_json::{Value, json};

use super::backend::well_formed;
use super::bench::{
    Bench, BenchSession, CheckFailure, CheckResult, refusal_message, to_short_json,
};
use super::{CheckKind, ContractCheck};

/// What a manifest says where the instance has tools that are known at run time only.
pub(super) const RUN_TIME_TOOLS: &str = "skill.tools/1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SkillCheck {
    /// The tool at this place of the manifest.
    Arguments(usize),
    /// The list of the tools at run time.
    RunTimeTools,
    /// All tools of that list.
    RunTimeArguments,
}

pub(super) fn checks(manifest: &Manifest) -> Vec<ContractCheck> {
    let tools = manifest.tools.iter().enumerate();
    let strict = tools.filter(|(_, tool)| !misfits(&tool.input_schema).is_empty());
    let strict = strict.map(|(place, tool)| {
        let name = format!(
            "`{}` refuses arguments that do not fit its schema",
            tool.name
        );
        (name, SkillCheck::Arguments(place))
    });
    let at_run_time = [
        (
            "its tools at run time can be listed",
            SkillCheck::RunTimeTools,
        ),
        (
            "its tools at run time refuse arguments that do not fit their schemas",
            SkillCheck::RunTimeArguments,
        ),
    ];
    let at_run_time = at_run_time.map(|(name, check)| (name.to_owned(), check));
    let at_run_time = at_run_time
        .into_iter()
        .filter(|_| manifest.has(RUN_TIME_TOOLS));
    strict
        .chain(at_run_time)
        .map(|(name, check)| ContractCheck::new(name, CheckKind::Skill(check)))
        .collect()
}

pub(super) async fn run(check: &SkillCheck, bench: &Bench) -> CheckResult {
    let manifest = bench.plugin.manifest();
    let session = bench.session(false);
    match check {
        SkillCheck::Arguments(place) => match manifest.tools.get(*place) {
            Some(tool) => refuses_misfits(&session, tool).await.map(drop),
            None => Ok(()),
        },
        SkillCheck::RunTimeTools => {
            let mut tools = manifest.tools.clone();
            tools.extend(run_time_tools(&session).await?);
            well_formed(&tools)
        }
        SkillCheck::RunTimeArguments => {
            let mut seen = false;
            for tool in run_time_tools(&session).await? {
                seen |= refuses_misfits(&session, &tool).await?;
            }
            match seen {
                true => Ok(()),
                false => Err(CheckFailure::left_out(
                    "no tool that it has at run time requires an argument",
                )),
            }
        }
    }
}

/// The tools that an instance of a skill lists beside those of its manifest.
pub(super) async fn run_time_tools(session: &BenchSession<'_>) -> CheckResult<Vec<ToolDecl>> {
    let listed: SkillTools = session.expect_reply(op::SKILL_TOOLS, &Empty {}).await?;
    Ok(listed.tools)
}

/// Checks that a tool refuses what its schema does not allow; whether there is such a thing.
async fn refuses_misfits(session: &BenchSession<'_>, tool: &ToolDecl) -> CheckResult<bool> {
    let misfits = misfits(&tool.input_schema);
    for arguments in &misfits {
        refuses(session, tool, &tool.op, arguments, arguments).await?;
    }
    Ok(!misfits.is_empty())
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
        to_short_json(arguments)
    );
    match session.ask::<ToolResult>(op, body).await {
        Ok(result) if result.is_error => Ok(()),
        Ok(result) => Err(CheckFailure::new(
            expected,
            to_short_json(&result.joined_text()),
        )),
        Err(failure) => refusal_message(failure, &expected).map(drop),
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
