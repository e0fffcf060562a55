//! `conjure session list | show | tools`.

use conjure_core::numerals::thousands;
use conjure_runtime::manager::{SessionState, SessionView};
use serde_json::{Value, json};

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, GREEN, RESET, Table, YELLOW, clean, duration, line, print_note};
use super::sessions::SavedSessions;

/// Sessions that are read at once.
const PAGE: u64 = 200;

pub(crate) async fn list(global: &Global, sessions: &SavedSessions) -> Result<Exit, CliError> {
    let mut all: Vec<SessionView> = Vec::new();
    loop {
        let after = all.last().map(|view| view.id.clone());
        let page = sessions.manager().list(after.as_deref(), PAGE).await?;
        let is_last = (page.len() as u64) < PAGE;
        all.extend(page);
        if is_last {
            break;
        }
    }
    if global.json {
        output::json(&json!({ "sessions": all }));
        return Ok(Exit::Success);
    }
    if all.is_empty() {
        print_note("There is no session yet; `conjure session create` saves one.");
        return Ok(Exit::Success);
    }
    let mut table = Table::new([
        "NAME", "ID", "STATE", "PROVIDER", "MODEL", "AUTH", "CHAT", "WORKS IN",
    ]);
    // One without a name is called by its id.
    if all.iter().any(|view| view.name.is_none()) {
        table = table.with_name_column("ID");
    }
    for view in &all {
        table.row([
            view.name.clone().unwrap_or_default(),
            view.id.clone(),
            state_name(view.state).to_owned(),
            view.auth.provider.clone(),
            view.model.clone(),
            view.auth.name.clone(),
            view.thread
                .as_ref()
                .map_or_else(String::new, |thread| thread.label.clone()),
            display_path(&view.working_dir),
        ]);
    }
    table.print();
    Ok(Exit::Success)
}

pub(crate) async fn show(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
) -> Result<Exit, CliError> {
    let view = sessions.manager().get(session).await?;
    if global.json {
        output::json(&view);
    } else {
        print(&view);
    }
    Ok(Exit::Success)
}

pub(crate) async fn tools(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
) -> Result<Exit, CliError> {
    let tool_preview = sessions.manager().tools(session).await?;
    if global.json {
        output::json(&conjure_runtime::describe::tool_preview_json(&tool_preview));
    } else {
        super::routes::print(&tool_preview);
    }
    Ok(Exit::Success)
}

/// Prints a session for people.
pub(crate) fn print(view: &SessionView) {
    let name = view.name.as_deref().unwrap_or("(no name)");
    let state = match view.state {
        SessionState::Idle => String::new(),
        SessionState::Running => format!("  {GREEN}running{RESET}"),
        SessionState::Waiting => format!("  {YELLOW}waits for a decision{RESET}"),
    };
    line(format_args!("{BOLD}{}{RESET}{state}", clean(name)));
    let row = |what: &str, value: &str| line(format_args!("  {what:<12}{}", clean(value)));
    row("id", &view.id);
    row("auth", &view.auth.to_string());
    row("model", &view.model);
    row("works in", &display_path(&view.working_dir));
    if !view.persona.persona_text.is_empty() {
        row("persona", &first_line(&view.persona.persona_text));
    }
    if !view.memory.is_empty() {
        row(
            "memory",
            &first_line(&Value::Object(view.memory.clone()).to_string()),
        );
    }
    if !view.mcps.is_empty() {
        let names: Vec<&str> = view.mcps.keys().map(String::as_str).collect();
        row("mcp servers", &names.join(", "));
    }
    let Some(thread) = &view.thread else {
        row("chat", "none: `conjure session new-chat`");
        return;
    };
    let label = match thread.label.as_str() {
        "" => "(no name yet)",
        label => label,
    };
    row("chat", label);
    row("thread", thread.id.as_str());
    row(
        "so far",
        &format!(
            "{} turns, {} replies, {} tokens",
            thread.turns,
            thread.replies,
            thousands(thread.usage.total())
        ),
    );
    if let (Some(latency), Some(tokens)) = (thread.average_latency_ms, thread.average_tokens) {
        let average = format!(
            "{}, {} tokens a reply",
            duration(latency),
            thousands(tokens)
        );
        row("on average", &average);
    }
    if view.queued > 0 {
        row("waiting", &format!("{} messages", view.queued));
    }
}

fn first_line(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let mut cut: String = first.chars().take(80).collect();
    if cut.len() < text.trim_end().len() {
        cut.push('…');
    }
    cut
}

fn state_name(state: SessionState) -> &'static str {
    match state {
        SessionState::Idle => "idle",
        SessionState::Running => "running",
        SessionState::Waiting => "waiting",
    }
}
