//! How a tool call looks to a client: title, kind, places, and its result.

use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ContentBlock, TextContent, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use conjure_core::routing::{CommandTool, EffectLevel, Route, SkillCallback};
use serde_json::{Value, json};

/// The most characters of a title.
const MAX_TITLE_CHARS: usize = 160;

/// A call, as it is announced.
pub(crate) fn tool_call(
    id: &str,
    name: &str,
    arguments: &Value,
    route: Option<&Route>,
    working_dir: &Path,
) -> ToolCall {
    let work = ToolAction::of(arguments, route);
    ToolCall::new(id.to_owned(), title(name, arguments, work))
        .name(name.to_owned())
        .kind(work.kind())
        .status(ToolCallStatus::Pending)
        .locations(locations(arguments, working_dir))
        .raw_input(arguments.clone())
}

/// A call that is asked about, once it was announced. What an update says replaces what is shown: where
/// it has nothing to show, it leaves that as it is.
pub(crate) fn approval_update(call: ToolCall) -> ToolCallUpdate {
    let mut update = ToolCallUpdate::from(call);
    let content = update.fields.content.take();
    update.fields.content = content.filter(|content| !content.is_empty());
    update
}

/// A call began to run.
pub(crate) fn running_update(id: &str) -> ToolCallUpdate {
    let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// The update with a call's live output so far.
pub(crate) fn live_output_update(id: &str, output: &str) -> ToolCallUpdate {
    let fields = ToolCallUpdateFields::new().content(vec![fenced(output)]);
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// A call's result. Where it is a change of a file that shows itself (`keeps`), the words about it
/// do not replace it; what went wrong does.
pub(crate) fn result_update(
    id: &str,
    output: &str,
    is_error: bool,
    keeps: bool,
    backend: Option<&str>,
    duration_ms: u64,
) -> ToolCallUpdate {
    let mut fields = ToolCallUpdateFields::new()
        .status(if is_error {
            ToolCallStatus::Failed
        } else {
            ToolCallStatus::Completed
        })
        .raw_output(json!({
            "output": output, "is_error": is_error, "backend": backend,
            "duration_ms": duration_ms,
        }));
    if !keeps || (is_error && !output.is_empty()) {
        let content = if output.is_empty() {
            Vec::new()
        } else {
            vec![fenced(output)]
        };
        fields = fields.content(content);
    }
    ToolCallUpdate::new(id.to_owned(), fields)
}

/// A text that is shown as it is: clients read texts as Markdown.
fn fenced(text: &str) -> ToolCallContent {
    let runs = text.split(|letter| letter != '`').map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or_default().max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{fence}\n{text}{end}{fence}");
    ToolCallContent::from(ContentBlock::Text(TextContent::new(text)))
}

/// What a tool does to files and programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolAction {
    Read,
    Run,
    Create,
    Replace,
    /// Work that changes something other than a file of the working directory.
    Change,
    Other,
}

impl ToolAction {
    /// As the tool's definition says. Where it is not known, as the arguments look.
    pub(crate) fn of(arguments: &Value, route: Option<&Route>) -> Self {
        let Some(definition) = route.map(|route| &route.definition) else {
            return Self::guess(arguments);
        };
        let op = &*definition.op;
        let looks = [CommandTool::View.op(), SkillCallback::Read.op()];
        let runs = [CommandTool::BashTool.op(), SkillCallback::Execute.op()];
        let changes = [SkillCallback::Write.op(), SkillCallback::Modify.op()];
        if op == CommandTool::CreateFile.op() {
            Self::Create
        } else if op == CommandTool::StrReplace.op() {
            Self::Replace
        } else if runs.contains(&op) {
            Self::Run
        } else if changes.contains(&op) {
            Self::Change
        } else if looks.contains(&op) || definition.effects == EffectLevel::Read {
            Self::Read
        } else {
            Self::Other
        }
    }

    fn guess(arguments: &Value) -> Self {
        let says = |fields: &[&str]| {
            let mut fields = fields.iter();
            fields.all(|field| arguments.get(*field).is_some_and(Value::is_string))
        };
        if says(&["path", "file_text"]) {
            Self::Create
        } else if says(&["path", "old_str"]) {
            Self::Replace
        } else if says(&["command"]) {
            Self::Run
        } else {
            Self::Other
        }
    }

    fn kind(self) -> ToolKind {
        match self {
            Self::Read => ToolKind::Read,
            Self::Run => ToolKind::Execute,
            Self::Create | Self::Replace | Self::Change => ToolKind::Edit,
            Self::Other => ToolKind::Other,
        }
    }
}

/// What it does, in a line: the command, or what is done to which file, or the tool's name.
fn title(name: &str, arguments: &Value, work: ToolAction) -> String {
    let argument = |field: &str| arguments.get(field).and_then(Value::as_str);
    let title = match work {
        ToolAction::Run => argument("command").map(|command| format!("`{command}`")),
        ToolAction::Read => argument("path").map(|path| format!("Read `{path}`")),
        ToolAction::Create => argument("path").map(|path| format!("Write `{path}`")),
        ToolAction::Replace | ToolAction::Change => {
            argument("path").map(|path| format!("Change `{path}`"))
        }
        ToolAction::Other => argument("path").map(|path| format!("{name} `{path}`")),
    };
    one_line(&title.unwrap_or_else(|| name.to_owned()))
}

fn one_line(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        line.push(' ');
        line.push_str(word);
    }
    if line.chars().count() <= MAX_TITLE_CHARS {
        return line;
    }
    let mut cut: String = line.chars().take(MAX_TITLE_CHARS - 1).collect();
    cut.push('…');
    if line.starts_with('`') {
        cut.push('`');
    }
    cut
}

fn locations(arguments: &Value, working_dir: &Path) -> Vec<ToolCallLocation> {
    let Some(path) = path_of(arguments, working_dir) else {
        return Vec::new();
    };
    let first = arguments.get("view_range").and_then(|range| range.get(0));
    let line = first.and_then(Value::as_u64);
    let line = line.and_then(|line| u32::try_from(line).ok());
    vec![ToolCallLocation::new(path).line(line)]
}

/// The file that a call is about.
pub(crate) fn path_of(arguments: &Value, working_dir: &Path) -> Option<PathBuf> {
    let path = arguments.get("path")?.as_str()?;
    let is_path = !path.is_empty() && !path.contains("://");
    is_path.then(|| working_dir.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_bounded_length() {
        assert_eq!(one_line("`echo a\n  b`"), "`echo a b`");
        let long = one_line(&format!("`{}`", "x".repeat(500)));
        assert_eq!(long.chars().count(), MAX_TITLE_CHARS + 1);
        assert!(long.ends_with("…`"));
    }

    #[test]
    fn an_output_cannot_leave_its_fence() {
        let text = serde_json::to_value(fenced("a\n````\nb")).unwrap();
        assert_eq!(text["content"]["text"], "`````\na\n````\nb\n`````");
    }

    #[test]
    fn a_call_says_where_it_is_at_work() {
        let arguments = json!({ "path": "src/a.rs", "view_range": [3, 9] });
        let call = tool_call("c", "local_view", &arguments, None, Path::new("/w"));
        let place = call.locations.first().unwrap();
        assert_eq!(place.path, Path::new("/w/src/a.rs"));
        assert_eq!(place.line, Some(3));
        let page = json!({ "path": "https://x.example" });
        assert_eq!(path_of(&page, Path::new("/w")), None);
    }
}
