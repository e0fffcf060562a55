//! MCP servers: the list, a form that adds one or changes it, a switch, a test, the question before one
//! is removed. Import is `mcp_import.rs`, login `mcp_login.rs`.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::PageState;
use crate::client::{ApiProblem, segment};
use crate::failure::PageFailure;
use crate::forms::{Field, form_error};
use crate::json_form::{Tabs, object};
use crate::layout::{Nav, PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::{Swap, go_to, piece, pieces};
use crate::saved::{FormData, FormProblem, McpServerInfo, fetch_all, invalid_at};
use crate::sheet::{Confirmation, refused_sheet, sheet};

pub(crate) fn router() -> Router<PageState> {
    Router::new()
        .route("/mcp", get(list).post(create))
        .route("/mcp/new", get(new))
        .route("/mcp/servers/{server}", get(edit).post(change))
        .route("/mcp/servers/{server}/enabled", post(switch))
        .route("/mcp/servers/{server}/test", post(test))
        .route("/mcp/servers/{server}/remove", get(ask).post(remove))
}

async fn list(State(app): State<PageState>, request: PageRequest) -> Result<Response, PageFailure> {
    let servers: Vec<McpServerInfo> = fetch_all(&app.api, "/api/v1/mcp-servers").await?;
    let body = html! {
        header."row spread" {
            h1 { "MCP servers" }
            div.row {
                a.button #mcp-import href="/mcp/import" data-dialog { "Import" }
                a.button.primary #mcp-new href="/mcp/new" data-dialog { "Add server" }
            }
        }
        p.muted { "A session chooses those that are enabled, and keeps a copy of their settings." }
        ul.cards #mcp-servers {
            @for server in &servers { (card(server)) }
        }
        p.empty { "No server is saved yet." }
    };
    Ok(layout(
        &request,
        &PageFrame::new(Nav::Mcp, "MCP servers"),
        &body,
    ))
}

fn text<'a>(settings: &'a Map<String, Value>, name: &str) -> &'a str {
    settings
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A list of settings, as words.
fn string_list(settings: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = settings.get(name).and_then(Value::as_array);
    let list = list.map_or(&[] as &[Value], Vec::as_slice);
    let word = |one: &Value| match one.as_str() {
        Some(word) => word.to_owned(),
        None => one.to_string(),
    };
    list.iter().map(word).collect()
}

/// A server with what can be done with it.
fn card(server: &McpServerInfo) -> Markup {
    let (id, name) = (&server.id, clean(&server.name));
    let at = format!("/mcp/servers/{}", segment(id));
    let url = text(&server.settings, "url");
    let reached = match url.is_empty() {
        true => {
            let mut all = vec![text(&server.settings, "command").to_owned()];
            all.extend(string_list(&server.settings, "args"));
            all.join(" ")
        }
        false => url.to_owned(),
    };
    html! {
        li.card.off[!server.enabled] id={ "mcp-" (id) } {
            div."row spread" {
                h2 { (name) }
                @if server.enabled { span.badge.good { "enabled" } } @else { span.badge { "disabled" } }
            }
            p.muted { @if url.is_empty() { "Program" } @else { "Address" } }
            p { code.break { (clean(&reached)) } }
            div.status id={ "mcp-status-" (id) } role="status" {}
            div.row {
                form method="post" action={ (at) "/test" } data-swap {
                    button.small id={ "mcp-test-" (id) } aria-label={ "Test " (name) } { "Test" }
                }
                form method="post" action={ (at) "/enabled" } data-swap {
                    input type="hidden" name="enabled" value=(if server.enabled { "no" } else { "yes" });
                    @let word = if server.enabled { "Disable" } else { "Enable" };
                    button.small id={ "mcp-switch-" (id) } aria-label={ (word) " " (name) } { (word) }
                }
                @if !url.is_empty() {
                    a.button.small id={ "mcp-login-" (id) } href={ (at) "/login" } data-dialog
                        aria-label={ "Log in to " (name) } { "Log in" }
                }
                a.button.small id={ "mcp-edit-" (id) } href=(at) data-dialog
                    aria-label={ "Edit " (name) } { "Edit" }
                a.button.small id={ "mcp-remove-" (id) } href={ (at) "/remove" } data-dialog
                    aria-label={ "Delete " (name) } { "Delete" }
            }
        }
    }
}

async fn new(request: PageRequest) -> Response {
    let sent = FormData::default();
    let body = form("/mcp", &sent, "", &Map::new(), None);
    sheet(&request, Nav::Mcp, "Add MCP server", &body)
}

/// Lines of `NAME` and a value, of an object in the settings; a value that is no text is JSON.
fn pairs(settings: &Map<String, Value>, name: &str, between: &str) -> String {
    let object = settings.get(name).and_then(Value::as_object);
    let lines = object
        .into_iter()
        .flatten()
        .map(|(name, value)| match value.as_str() {
            Some(value) => format!("{name}{between}{value}"),
            None => format!("{name}{between}{value}"),
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// The object that such lines say.
fn object_of(
    field: &str,
    lines: &[String],
    between: char,
) -> Result<Map<String, Value>, ApiProblem> {
    let mut object = Map::new();
    for line in lines {
        let Some((name, value)) = line.split_once(between) else {
            let shape = format!("NAME{between}value");
            let detail = format!("`{field}`: a line is {shape}, and this one is not: {line}");
            return Err(invalid_at(field, detail));
        };
        let value = value.trim();
        // What was sealed is named by JSON, and goes back as it came.
        let named = serde_json::from_str::<Value>(value)
            .ok()
            .filter(Value::is_object);
        object.insert(
            name.trim().to_owned(),
            named.unwrap_or_else(|| value.into()),
        );
    }
    Ok(object)
}

fn form(
    action: &str,
    sent: &FormData,
    name: &str,
    now: &Map<String, Value>,
    problem: Option<&ApiProblem>,
) -> Markup {
    let wrong = FormProblem::of(
        problem,
        &[
            "name", "url", "command", "args", "env", "headers", "settings",
        ],
    );
    let was_sent = sent.has("settings_mode");
    let text_of = |field: &str, now: String| if was_sent { sent.text(field) } else { now };
    let is_address = match was_sent {
        true => sent.text("reach") == "url",
        false => !text(now, "url").is_empty(),
    };
    let fields = html! {
        div.row role="radiogroup" aria-label="How it is reached" {
            @for (value, words, chosen) in [("command", "A program", !is_address), ("url", "An address", is_address)] {
                label.choice {
                    input id={ "mcp-reach-" (value) } type="radio" name="reach" value=(value) checked[chosen];
                    " " (words)
                }
            }
        }
        div.by-command {
            (Field::new("mcp-command", "command", "Command").error(wrong.for_field("command"))
                .input("text", &text_of("command", text(now, "command").to_owned())))
            (Field::new("mcp-args", "args", "Arguments").error(wrong.for_field("args")).hint("One a line")
                .textarea(2, &text_of("args", field_text(now, "args"))))
            (Field::new("mcp-env", "env", "Environment").error(wrong.for_field("env"))
                .hint("Lines of NAME=value; what is typed here is sealed, and named from then on")
                .textarea(2, &text_of("env", field_text(now, "env"))))
        }
        div.by-url {
            (Field::new("mcp-url", "url", "URL").error(wrong.for_field("url"))
                .input("text", &text_of("url", text(now, "url").to_owned())))
            (Field::new("mcp-headers", "headers", "Headers").error(wrong.for_field("headers"))
                .hint("Lines of Name: value; sealed as well")
                .textarea(2, &text_of("headers", field_text(now, "headers"))))
        }
    };
    let tabs = Tabs::new("mcp", "settings", "Settings", sent);
    html! {
        form #mcp-form method="post" action=(action) data-swap {
            (form_error(wrong.general()))
            (Field::new("mcp-name", "name", "Name").required().error(wrong.for_field("name"))
                .input("text", &text_of("name", name.to_owned())))
            div.reach { (tabs.show(&fields, "As below backend.config.servers in a session file", now, wrong.for_field("settings"))) }
            div.row { button.primary #mcp-save { "Save" } }
        }
    }
}

/// A setting as its field shows it.
fn field_text(settings: &Map<String, Value>, name: &str) -> String {
    match name {
        "args" => string_list(settings, name).join("\n"),
        "env" => pairs(settings, name, "="),
        "headers" => pairs(settings, name, ": "),
        _ => text(settings, name).to_owned(),
    }
}

/// What a field says, as a setting; none where it says nothing.
fn parse_field(name: &str, text: &str) -> Result<Option<Value>, ApiProblem> {
    let lines: Vec<String> = text.lines().map(str::trim).map(str::to_owned).collect();
    let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    Ok(match name {
        _ if lines.is_empty() => None,
        "args" => Some(lines.into()),
        "env" => Some(object_of(name, &lines, '=')?.into()),
        "headers" => Some(object_of(name, &lines, ':')?.into()),
        _ => Some(text.trim().into()),
    })
}

/// What a setting becomes. What stayed as it was shown stays as it was, also where the field cannot
/// say it; what was changed must be all that the setting is.
fn value_of(
    name: &str,
    sent: &str,
    before: &Map<String, Value>,
) -> Result<Option<Value>, ApiProblem> {
    // As browsers send it: they leave out the first line break of a field.
    let as_sent = |text: &str| {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        text.strip_prefix('\n').map(str::to_owned).unwrap_or(text)
    };
    let (was, kept) = (field_text(before, name), before.get(name));
    if as_sent(sent) == as_sent(&was) {
        return Ok(kept.cloned());
    }
    let is_line = matches!(name, "command" | "url");
    if !is_line && kept.is_some() && parse_field(name, &was).ok().flatten().as_ref() != kept {
        let detail = format!(
            "`{name}` holds what lines cannot say, such as a line break, an empty value or blanks \
             at the ends: change it under “Advanced”"
        );
        return Err(invalid_at(name, detail));
    }
    parse_field(name, sent)
}

/// The settings that a form asks for. A form of fields keeps what they do not show.
fn settings_of(
    sent: &FormData,
    before: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiProblem> {
    if sent.text("settings_mode") == "json" {
        return object("settings", &sent.text("settings_json"));
    }
    let mut settings = before.clone();
    for name in ["command", "args", "env", "url", "headers"] {
        settings.remove(name);
    }
    let (needed, fields) = match sent.text("reach") == "url" {
        true => ("url", &["url", "headers"][..]),
        false => ("command", &["command", "args", "env"][..]),
    };
    for name in fields {
        if let Some(value) = value_of(name, &sent.text(name), before)? {
            settings.insert((*name).to_owned(), value);
        }
    }
    let given = settings.get(needed).and_then(Value::as_str);
    if given.is_none_or(str::is_empty) {
        return Err(invalid_at(needed, format!("`{needed}` is needed")));
    }
    Ok(settings)
}

async fn create(State(app): State<PageState>, request: PageRequest, sent: FormData) -> Response {
    let body = settings_of(&sent, &Map::new());
    let made = match body {
        Ok(settings) => {
            let body = json!({ "name": sent.line("name"), "settings": settings });
            app.api
                .send::<Value>(Method::POST, "/api/v1/mcp-servers", &body)
                .await
        }
        Err(problem) => Err(problem),
    };
    match made {
        Ok(_) => go_to(&request, "/mcp"),
        Err(problem) => {
            let body = form("/mcp", &sent, "", &Map::new(), Some(&problem));
            refused_sheet(&request, Nav::Mcp, "Add MCP server", &body)
        }
    }
}

pub(crate) fn at(id: &str) -> String {
    format!("/api/v1/mcp-servers/{}", segment(id))
}

async fn edit(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let server: McpServerInfo = app.api.get(&at(&id)).await?;
    let action = format!("/mcp/servers/{}", segment(&id));
    let body = form(
        &action,
        &FormData::default(),
        &server.name,
        &server.settings,
        None,
    );
    Ok(sheet(&request, Nav::Mcp, "Edit MCP server", &body))
}

async fn change(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let server: McpServerInfo = app.api.get(&at(&id)).await?;
    let changed = match settings_of(&sent, &server.settings) {
        Ok(settings) => {
            let body = json!({ "name": sent.line("name"), "settings": settings });
            app.api.send::<Value>(Method::PATCH, &at(&id), &body).await
        }
        Err(problem) => Err(problem),
    };
    Ok(match changed {
        Ok(_) => go_to(&request, "/mcp"),
        Err(problem) => {
            let action = format!("/mcp/servers/{}", segment(&id));
            let body = form(
                &action,
                &sent,
                &server.name,
                &server.settings,
                Some(&problem),
            );
            refused_sheet(&request, Nav::Mcp, "Edit MCP server", &body)
        }
    })
}

async fn switch(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
    sent: FormData,
) -> Result<Response, PageFailure> {
    let body = json!({ "enabled": sent.text("enabled") == "yes" });
    let server: McpServerInfo = app.api.send(Method::PATCH, &at(&id), &body).await?;
    if request.pieces {
        let fresh = card(&server);
        return Ok(pieces(piece(
            Swap::Outer,
            &format!("mcp-{}", server.id),
            &fresh,
        )));
    }
    Ok(go_to(&request, "/mcp"))
}

async fn test(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let tested = app
        .api
        .send_empty::<Value>(Method::POST, &format!("{}/test", at(&id)))
        .await;
    let said = match &tested {
        Ok(found) => test_result(found),
        Err(problem) => html! { p.wrong { (problem.detail) } },
    };
    if request.pieces {
        return Ok(pieces(piece(
            Swap::Inner,
            &format!("mcp-status-{id}"),
            &said,
        )));
    }
    let body = html! { (said) p { a href="/mcp" { "MCP servers" } } };
    Ok(sheet(&request, Nav::Mcp, "Test of an MCP server", &body))
}

fn test_result(found: &Value) -> Markup {
    let works = found.get("works").and_then(Value::as_bool).unwrap_or(false);
    let text = |name: &str| found.get(name).and_then(Value::as_str);
    let tools = found.get("tools").and_then(Value::as_u64);
    html! {
        @if works {
            p.good { "It works" @if let Some(tools) = tools { ": " (tools) @if tools == 1 { " tool" } @else { " tools" } } "." }
        } @else {
            p.wrong { (text("state").unwrap_or("failed")) @if let Some(why) = text("why") { ": " (clean(why)) } }
        }
    }
}

async fn ask(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    let server: McpServerInfo = app.api.get(&at(&id)).await?;
    let question = Confirmation {
        title: "Delete MCP server",
        message: html! {
            p { "Delete the MCP server " strong { (clean(&server.name)) } "? Sessions keep the copy that they have." }
        },
        action: format!("/mcp/servers/{}/remove", segment(&id)),
        button: "Delete",
        id: "mcp-remove-yes",
        error: None,
    };
    Ok(question.ask(&request, Nav::Mcp))
}

async fn remove(
    State(app): State<PageState>,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, PageFailure> {
    app.api
        .send_empty::<Value>(Method::DELETE, &at(&id))
        .await?;
    Ok(go_to(&request, "/mcp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_settings_and_what_was_sealed_goes_back_as_it_came() {
        let sealed =
            json!({ "command": "old", "timeout": 5, "env": { "A": { "secret": "MCP_A" } } });
        let before = sealed.as_object().unwrap().clone();
        let sent = FormData::from([
            ("reach", "command".to_owned()),
            ("command", "notes-server".to_owned()),
            ("args", "--all\n\nx y".to_owned()),
            ("env", format!("{}\nB=c=d", pairs(&before, "env", "="))),
        ]);
        let settings = settings_of(&sent, &before).unwrap();
        assert_eq!(
            Value::Object(settings),
            json!({
                "command": "notes-server", "timeout": 5, "args": ["--all", "x y"],
                "env": { "A": { "secret": "MCP_A" }, "B": "c=d" },
            })
        );
        let sent = FormData::from([
            ("reach", "url".to_owned()),
            ("headers", "no colon".to_owned()),
        ]);
        assert!(
            settings_of(&sent, &before)
                .unwrap_err()
                .detail
                .starts_with("`headers`")
        );
        // What a field cannot say stays where only the rest is changed, and is not changed by it.
        let odd = json!({ "command": "run ", "args": ["", " a\nb", 5], "env": { "A": " x " } });
        let odd = odd.as_object().unwrap().clone();
        let of = |args: &str| {
            let sent = FormData::from([
                ("reach", "command".to_owned()),
                ("command", "run ".to_owned()),
                ("args", args.to_owned()),
                ("env", field_text(&odd, "env")),
            ]);
            settings_of(&sent, &odd)
        };
        let args = field_text(&odd, "args");
        assert_eq!(of(&args).unwrap(), odd);
        // A browser leaves out the first line break.
        assert_eq!(of(args.trim_start_matches('\n')).unwrap(), odd);
        let refused = of("new").unwrap_err().detail;
        assert!(refused.starts_with("`args`") && refused.contains("Advanced"));
        let sent = FormData::from([("reach", "url".to_owned())]);
        assert_eq!(
            settings_of(&sent, &before).unwrap_err().detail,
            "`url` is needed"
        );
    }
}
