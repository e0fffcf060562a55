//! Three tools with which a client reaches all the others: for those that do not read the list
//! again when it changes, or for whom so many tools cost too much.

use rmcp::model::{ErrorData, Tool};
use serde_json::{Map, Value, json};

use super::tools::ServedTools;

pub(super) const SEARCH: &str = "search_tools";
pub(super) const DETAILS: &str = "get_tool_details";
pub(super) const CALL: &str = "call_tool";
/// Names of the three tools.
pub(super) const NAMES: [&str; 3] = [SEARCH, DETAILS, CALL];

/// Tools that a search finds, where nothing else is said, and at the most.
const DEFAULT_RESULTS: usize = 10;
const MAX_RESULTS: usize = 100;
/// The most characters of a description in what a search finds.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Definitions of the three tools.
pub(super) fn tools() -> Vec<Tool> {
    let definitions = [
        (
            CALL,
            "Calls a tool by its name, with arguments that fit its input schema. The result is \
             the tool's.",
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "The tool's name" },
                    "arguments": { "type": "object", "description": "The tool's arguments" },
                },
                "required": ["name"],
            }),
            false,
        ),
        (
            DETAILS,
            "Shows the whole definition of tools: description, input schema, output schema.",
            json!({
                "type": "object",
                "properties": {
                    "names": {
                        "type": "array",
                        "items": { "type": "string" },
                        "minItems": 1,
                        "maxItems": 20,
                        "description": "The tools' names",
                    },
                },
                "required": ["names"],
            }),
            true,
        ),
        (
            SEARCH,
            "Finds tools by words in their names and descriptions. New tools are found as soon as \
             they are there. Without a query it shows the first ones.",
            json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "Words to look for" },
                    "limit": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS },
                },
            }),
            true,
        ),
    ];
    let tool = |(name, description, schema, reads): (&str, &str, Value, bool)| {
        let value = json!({
            "name": name,
            "description": description,
            "inputSchema": schema,
            "annotations": { "readOnlyHint": reads },
        });
        serde_json::from_value(value).ok()
    };
    definitions.into_iter().filter_map(tool).collect()
}

/// What `search_tools` and `get_tool_details` say.
///
/// # Errors
/// When the arguments do not fit.
pub(super) fn answer(
    name: &str,
    arguments: &Map<String, Value>,
    tools: &ServedTools,
) -> Result<Value, String> {
    if name == SEARCH {
        return search(arguments, tools);
    }
    let names = arguments.get("names").and_then(Value::as_array);
    let names = names.ok_or("it needs `names`, a list of tools' names")?;
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for name in names.iter().take(20).filter_map(Value::as_str) {
        match tools.find(name) {
            Some(served) => found.push(served.definition()),
            None => unknown.push(name),
        }
    }
    Ok(json!({ "tools": found, "unknown": unknown }))
}

fn search(arguments: &Map<String, Value>, tools: &ServedTools) -> Result<Value, String> {
    let query = match arguments.get("query") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(query)) => query.to_lowercase(),
        Some(_) => return Err("`query` is a text".to_owned()),
    };
    let limit = arguments.get("limit").and_then(Value::as_u64);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
    let words: Vec<&str> = query.split_whitespace().collect();
    let mut found: Vec<(usize, &Tool)> = tools
        .all()
        .iter()
        .map(|served| (score(&served.tool, &words), &served.tool))
        .filter(|(score, _)| words.is_empty() || *score > 0)
        .collect();
    // Stable, so equal ones stay in the order of their names.
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let total = found.len();
    let shown: Vec<Value> = found
        .into_iter()
        .take(limit)
        .map(|(_, tool)| json!({ "name": tool.name, "description": short_description(tool) }))
        .collect();
    Ok(json!({ "tools": shown, "found": total, "of": tools.all().len() }))
}

/// How well a tool fits: a word in its name counts more than one in its description.
fn score(tool: &Tool, words: &[&str]) -> usize {
    let name = tool.name.to_lowercase();
    let title = tool.title.as_deref().unwrap_or_default().to_lowercase();
    let description = tool
        .description
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    let score_of = |word: &&str| {
        4 * usize::from(name.contains(word))
            + 2 * usize::from(title.contains(word))
            + usize::from(description.contains(word))
    };
    words.iter().map(score_of).sum()
}

fn short_description(tool: &Tool) -> String {
    let text = tool.description.as_deref().unwrap_or_default();
    match text.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The tool and the arguments that `call_tool` is asked for.
///
/// # Errors
/// When they do not fit.
pub(super) fn inner_call(
    arguments: Option<Map<String, Value>>,
) -> Result<(String, Option<Map<String, Value>>), ErrorData> {
    let invalid = |text: &'static str| ErrorData::invalid_params(text, None);
    let mut arguments = arguments.unwrap_or_default();
    let name = match arguments.remove("name") {
        Some(Value::String(name)) => name,
        _ => return Err(invalid("`call_tool` needs the `name` of a tool")),
    };
    match arguments.remove("arguments") {
        None | Some(Value::Null) => Ok((name, None)),
        Some(Value::Object(arguments)) => Ok((name, Some(arguments))),
        Some(_) => Err(invalid("`call_tool`: its `arguments` are no object")),
    }
}
