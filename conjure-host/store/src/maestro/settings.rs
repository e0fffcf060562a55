//! Saved authentications, personas, MCP servers and the settings of sessions there, in the shapes
//! that they have here.

use std::path::Path;

use secrecy::SecretString;
use serde_json::{Map, Value as Json, json};

use crate::StoreError;

use super::report::{Left, LeftOut};
use super::source::{Fields, MaestroSource, SourceTable};
use super::threads::shorten;
use super::{Maestro, MaestroAuth, MaestroPersona, MaestroSecret};

pub(super) const AUTHS: SourceTable = SourceTable {
    table: "saved_authentications",
    columns: &[
        "id",
        "provider",
        "auth_type",
        "name",
        "credentials",
        "expires_at",
    ],
};
pub(super) const SESSIONS: SourceTable = SourceTable {
    table: "sessions",
    columns: &[
        "id",
        "name",
        "agent_id",
        "auth_id",
        "model_id",
        "working_dir",
        "persona",
        "memory",
        "tools",
        "mcps",
        "latest_chat_entry_id",
        "inserted_at",
        "updated_at",
    ],
};
pub(super) const AGENTS: SourceTable = SourceTable {
    table: "agents",
    columns: &[
        "id",
        "auth_id",
        "model_id",
        "working_directory",
        "persona_id",
        "base_system_prompt_id",
        "memory",
        "tools",
        "mcps",
    ],
};
pub(super) const PROMPTS: SourceTable = SourceTable {
    table: "base_system_prompts",
    columns: &["id", "prompt_text"],
};
pub(super) const SERVERS: SourceTable = SourceTable {
    table: "mcp_servers",
    columns: &[
        "id",
        "name",
        "transport",
        "url",
        "command",
        "args",
        "headers",
        "env",
        "auth_token",
        "is_enabled",
    ],
};
pub(super) const ATTACHED: SourceTable = SourceTable {
    table: "session_mcp_servers",
    columns: &["id", "session_id", "mcp_server_id"],
};
const PERSONAS: SourceTable = SourceTable {
    table: "personas",
    columns: &["id", "name", "prompt_text"],
};
const ITEMS: SourceTable = SourceTable {
    table: "supplied_context_items",
    columns: &["id", "type", "name", "text", "version"],
};

/// Name and version of a persona without a name.
const UNNAMED_PERSONA: (&str, &str) = ("default", "1");
/// The longest name of a session, in characters.
const MAX_NAME_CHARS: usize = 100;
/// A text of so many letters and digits in one piece is no word.
const MIN_TOKEN_CHARS: usize = 24;

/// The settings of a Maestro session.
pub(super) struct MaestroSettings {
    pub(super) id: String,
    pub(super) name: Option<String>,
    /// The saved authentication there.
    pub(super) auth: Option<String>,
    pub(super) model: Option<String>,
    pub(super) working_dir: Option<String>,
    pub(super) persona: Json,
    pub(super) memory: Json,
    pub(super) mcps: Json,
    /// The newest row of its history.
    pub(super) latest_row: Option<String>,
    pub(super) created_at_ms: Option<i64>,
    pub(super) updated_at_ms: Option<i64>,
    pub(super) left_out: LeftOut,
}

impl MaestroSettings {
    /// Label of the session: its name, or `session-` and the beginning of its id.
    pub(super) fn label(&self) -> String {
        let short = || format!("session-{}", self.id.chars().take(8).collect::<String>());
        self.name.clone().unwrap_or_else(short)
    }

    /// Text of the persona for the model.
    pub(super) fn persona_text(&self) -> &str {
        let text = self.persona.get("persona_text").and_then(Json::as_str);
        text.unwrap_or_default()
    }
}

impl Maestro {
    /// The sessions. What a session does not say, its agent does.
    pub(super) fn settings(&self) -> impl Iterator<Item = MaestroSettings> {
        self.sessions.iter().filter_map(|row| self.settings_of(row))
    }

    fn settings_of(&self, row: &Fields) -> Option<MaestroSettings> {
        let id = row.nonblank("id")?.to_owned();
        let none = Fields::default();
        let agent = row
            .text("agent_id")
            .and_then(|agent| self.agents.get(agent));
        let agent = agent.unwrap_or(&none);
        let mut left_out = LeftOut::default();
        let mut object = |column: &str| {
            for fields in [row, agent] {
                match fields.json(column) {
                    Some(Json::Object(object)) if !object.is_empty() => return object,
                    Some(Json::Object(_) | Json::Null) | None => {}
                    Some(_) => left_out.count(Left::Settings),
                }
            }
            Map::new()
        };
        let (persona, memory) = (object("persona"), object("memory"));
        let (tools, mcps) = (object("tools"), object("mcps"));
        if !tools.is_empty() {
            left_out.count(Left::Tools);
        }
        let either = |here: &str, there: &str| {
            let text = row.nonblank(here).or_else(|| agent.nonblank(there));
            text.map(str::to_owned)
        };
        Some(MaestroSettings {
            name: row.nonblank("name").map(|name| {
                let short = shorten(name, MAX_NAME_CHARS);
                if short != name {
                    left_out.count(Left::Names);
                }
                short
            }),
            auth: either("auth_id", "auth_id"),
            model: either("model_id", "model_id"),
            // One that is relative, or begins with `~`, was so to a program that is not here.
            working_dir: either("working_dir", "working_directory")
                .filter(|dir| Path::new(dir).is_absolute()),
            persona: self.persona(&persona, agent),
            memory: memory.into(),
            mcps: self.mcps(&id, mcps, &mut left_out),
            latest_row: row.text("latest_chat_entry_id").map(str::to_owned),
            created_at_ms: row.number("inserted_at"),
            updated_at_ms: row.number("updated_at"),
            left_out,
            id,
        })
    }

    /// A persona with all its fields: the session's, else its agent's with the base prompt before
    /// it, else one that says nothing.
    fn persona(&self, own: &Map<String, Json>, agent: &Fields) -> Json {
        let text = |name: &str| match own.get(name) {
            Some(Json::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            Some(Json::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let of_agent = agent.text("persona_id");
        let of_agent = self
            .personas
            .iter()
            .find(|persona| Some(persona.id.as_str()) == of_agent);
        let told = text("persona_text").unwrap_or_else(|| {
            let base = agent.text("base_system_prompt_id");
            let base = base.and_then(|base| self.prompts.get(base));
            let texts = [base, of_agent.map(|persona| &persona.text)];
            let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
            texts.join("\n\n")
        });
        let (name, version) =
            of_agent.map_or(UNNAMED_PERSONA, |p| (p.name.as_str(), p.version.as_str()));
        json!({
            "name": text("name").unwrap_or_else(|| name.to_owned()),
            "version": text("version").unwrap_or_else(|| version.to_owned()),
            "persona_text": told,
        })
    }

    /// The MCP servers of a session: those of its own settings, and those that are attached.
    fn mcps(&self, session: &str, own: Map<String, Json>, left_out: &mut LeftOut) -> Json {
        let mut mcps = Map::new();
        for (name, settings) in own {
            match server(&settings) {
                Some(settings) => {
                    mcps.insert(name, settings);
                }
                None => left_out.count(Left::Mcps),
            }
        }
        for id in self.attached_servers.get(session).into_iter().flatten() {
            let row = self.servers.get(id);
            let named = row.and_then(|row| Some((row.nonblank("name")?, server(&as_json(row))?)));
            match named {
                Some((name, settings)) => {
                    mcps.insert(name.to_owned(), settings);
                }
                None => left_out.count(Left::Mcps),
            }
        }
        mcps.into()
    }

    /// All MCP servers: names with settings, or with nothing where these may hold a secret, and
    /// whether they are switched on.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&str, Option<Json>, bool)> {
        self.servers.values().filter_map(|row| {
            let on = row.text("is_enabled") == Some("true");
            Some((row.nonblank("name")?, server(&as_json(row)), on))
        })
    }
}

fn as_json(row: &Fields) -> Json {
    let mut object = Map::new();
    for name in ["url", "command", "auth_token"] {
        if let Some(text) = row.nonblank(name) {
            object.insert(name.to_owned(), text.into());
        }
    }
    for name in ["headers", "env"] {
        if let Some(json) = row.json(name) {
            object.insert(name.to_owned(), json);
        }
    }
    if let Some(args) = row.nonblank("args") {
        object.insert("args".to_owned(), array(args).into());
    }
    object.into()
}

/// PostgreSQL's text of an array of texts.
fn array(text: &str) -> Vec<String> {
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let mut items = Vec::new();
    let mut item = String::new();
    let mut quoted = false;
    let mut is_item = false;
    let mut chars = inner.unwrap_or_default().chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                quoted = !quoted;
                is_item = true;
            }
            '\\' => item.extend(chars.next()),
            ',' if !quoted => {
                items.push(std::mem::take(&mut item));
                is_item = true;
            }
            c => {
                item.push(c);
                is_item = true;
            }
        }
    }
    if is_item {
        items.push(item);
    }
    items
}

/// The settings of an MCP server in the shape of the session file; nothing when they are not
/// understood, or may hold a secret.
fn server(settings: &Json) -> Option<Json> {
    let is_empty = |name: &str| match settings.get(name) {
        None | Some(Json::Null) => true,
        Some(Json::Object(object)) => object.is_empty(),
        Some(Json::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if !["headers", "env", "auth_token", "token"]
        .into_iter()
        .all(is_empty)
    {
        return None;
    }
    let text = |name: &str| settings.get(name).and_then(Json::as_str);
    let args = settings.get("args").and_then(Json::as_array);
    let args: Vec<&str> = args
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let url = text("url").filter(|url| !url.is_empty());
    let command = text("command").filter(|command| !command.is_empty());
    let texts = args.iter().copied().chain(url).chain(command);
    if texts.into_iter().any(may_hold_a_secret) {
        return None;
    }
    match (command, url) {
        (Some(command), _) => Some(json!({ "command": command, "args": args })),
        (None, Some(url)) => Some(json!({ "url": url })),
        (None, None) => None,
    }
}

/// Whether a text may hold a secret. Errs on the careful side.
fn may_hold_a_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let named = [
        "token",
        "key",
        "secret",
        "passw",
        "credential",
        "bearer",
        "auth",
    ];
    let in_url = lower.contains("://") && lower.contains(['@', '?']);
    let mut pieces = text.split(|c: char| !c.is_ascii_alphanumeric());
    in_url
        || named.iter().any(|word| lower.contains(word))
        || pieces.any(|piece| piece.len() >= MIN_TOKEN_CHARS)
}

/// The saved authentications. The oldest form has no names: one for each provider and kind.
pub(super) fn auths(rows: &[Fields]) -> Vec<MaestroAuth> {
    let auth = |row: &Fields| {
        let provider = row.nonblank("provider")?.to_owned();
        let kind = row.nonblank("auth_type").unwrap_or("api_key");
        let name = row.nonblank("name").map(str::to_owned);
        Some(MaestroAuth {
            id: row.nonblank("id")?.to_owned(),
            name: name.unwrap_or_else(|| format!("default_{provider}_{kind}")),
            secret: secret(row),
            expires_at_ms: row.number("expires_at"),
            provider,
        })
    };
    rows.iter().filter_map(auth).collect()
}

fn secret(row: &Fields) -> MaestroSecret {
    let credentials = row.json("credentials");
    let Some(Json::Object(credentials)) = credentials else {
        return MaestroSecret::Unreadable(match row.text("credentials") {
            None => "it has no credentials",
            Some(_) => "its credentials are encrypted by the other application, or damaged",
        });
    };
    let text = |name: &str| {
        let text = credentials.get(name).and_then(Json::as_str);
        text.filter(|text| !text.trim().is_empty())
            .map(SecretString::from)
    };
    match (text("api_key"), text("access_token")) {
        (Some(key), _) => MaestroSecret::ApiKey(key),
        (None, Some(token)) => MaestroSecret::Token(token),
        (None, None) => {
            MaestroSecret::Unreadable("its credentials hold neither `api_key` nor `access_token`")
        }
    }
}

/// The personas, those of both forms that the application kept, and how many prompts are none.
pub(super) async fn personas(
    source: &MaestroSource,
) -> Result<(Vec<MaestroPersona>, u64), StoreError> {
    let mut rows = source.table(PERSONAS).await?;
    let items = source.table(ITEMS).await?;
    let is_persona = |row: &Fields| row.text("type") == Some("persona");
    let (items, others): (Vec<_>, Vec<_>) = items.into_iter().partition(is_persona);
    rows.extend(items);
    let persona = |row: Fields| {
        Some(MaestroPersona {
            id: row.nonblank("id")?.to_owned(),
            name: row.nonblank("name")?.to_owned(),
            version: row
                .nonblank("version")
                .unwrap_or(UNNAMED_PERSONA.1)
                .to_owned(),
            text: row.text("prompt_text").or(row.text("text"))?.to_owned(),
        })
    };
    let personas = rows.into_iter().filter_map(persona).collect();
    Ok((personas, others.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_read_as_it_was_written() {
        for (text, items) in [
            ("{}", vec![]),
            ("{a}", vec!["a"]),
            ("{-y,notes-server}", vec!["-y", "notes-server"]),
            (r#"{"a b","",",\"\\}"}"#, vec!["a b", "", ",\"\\}"]),
            ("nonsense", vec![]),
        ] {
            assert_eq!(array(text), items, "{text}");
        }
    }

    #[test]
    fn a_server_with_what_may_be_a_secret_is_not_taken() {
        let plain = json!({"command": "npx", "args": ["-y", "notes-server"], "env": {}});
        let taken = json!({"command": "npx", "args": ["-y", "notes-server"]});
        assert_eq!(server(&plain), Some(taken));
        for secret in [
            json!({"command": "x", "env": {"A": "b"}}),
            json!({"url": "https://h/mcp", "headers": {"x": "y"}}),
            json!({"url": "https://h/mcp", "auth_token": "t"}),
            json!({"url": "https://me:pw@h/mcp"}),
            json!({"url": "https://h/mcp?k=v"}),
            json!({"command": "x", "args": ["--api-key", "v"]}),
            json!({"command": "x", "args": ["0123456789abcdef0123456789"]}),
            json!({"args": []}),
            json!([]),
        ] {
            assert_eq!(server(&secret), None, "{secret}");
        }
    }
}
