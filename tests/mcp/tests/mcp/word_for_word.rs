//! The reference servers, asked directly and through `conjure mcp serve`: what a client gets is
//! what they sent, for every tool, resource and prompt, over stdio and HTTP and in both eras.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use conjure_kit::{ProgramHandle, Workspace, cli, conjure_bin};
use serde_json::{Map, Value, json};

use crate::peers::Peers;
use crate::wire::{Http, Manner, OverStdio, Wire};

/// The most that a server may run.
const LIMIT: Duration = Duration::from_secs(240);
/// Tools whose results are other ones each time: numbers and what was packed are not compared.
const VOLATILE: &[&str] = &[
    "get_current_time",
    "convert_time",
    "get_file_info",
    "list_directory_with_sizes",
    "get-env",
    "get-resource-reference",
    "gzip-file-as-resource",
];

/// A server as a session file has it.
pub(super) struct Server {
    pub(super) name: &'static str,
    command: PathBuf,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    pub(super) work: PathBuf,
    /// Whether it also speaks the newer era.
    pub(super) is_new: bool,
}

impl Server {
    pub(super) fn direct(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.args(&self.args).env_clear().current_dir(&self.work);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// A workspace whose session has this server, and nothing else.
    fn workspace(&self) -> Workspace {
        let workspace = Workspace::new().unwrap();
        workspace.add_plugin("conjure-backend-mcp").unwrap();
        workspace
            .write("session.toml", self.session("mcp"))
            .unwrap();
        workspace
    }

    /// A backend of this name with this server.
    fn session(&self, backend: &str) -> String {
        format!(
            "[[backend]]\nkind = \"mcp\"\nname = \"{backend}\"\nprefix = \"none\"\n[backend.config]\n\
             catalog_wait_ms = 60000\n{}",
            self.entry("s", false)
        )
    }

    /// The server among the servers of a backend, under this name.
    pub(super) fn entry(&self, name: &str, modern: bool) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let env = self.env.iter();
        let env: Vec<_> = env
            .map(|(name, value)| format!("{name} = {}", text(value)))
            .collect();
        let era = if modern { "modern" } else { "legacy" };
        format!(
            "[backend.config.servers.{name}]\ncommand = {:?}\nargs = {}\nenv = {{ {} }}\n\
             cwd = {:?}\nera = \"{era}\"\ninitialize_timeout_ms = 60000\n",
            self.command,
            json!(self.args),
            env.join(", "),
            self.work,
        )
    }
}

/// All reference servers, over stdio and by their own programs, each in a directory of its own.
pub(super) fn servers(peers: &Peers, root: &Path) -> Vec<Server> {
    // `~` stands for its directory.
    let server = |name, command: PathBuf, args: &[&str]| {
        let work = root.join(name);
        let home = work.to_str().unwrap().to_owned();
        Server {
            name,
            command,
            args: args.iter().map(|arg| arg.replace('~', &home)).collect(),
            env: vec![
                ("PATH", peers.path().into_string().unwrap()),
                ("HOME", home.clone()),
                ("LANG", "C".to_owned()),
                ("TZ", "UTC".to_owned()),
                ("MEMORY_FILE_PATH", format!("{home}/memory.jsonl")),
            ],
            work,
            is_new: matches!(name, "time" | "git" | "web"),
        }
    };
    vec![
        server("everything", peers.js("mcp-server-everything"), &["stdio"]),
        server("files", peers.js("mcp-server-filesystem"), &["~"]),
        server("memory", peers.js("mcp-server-memory"), &[]),
        server("time", peers.python("mcp-server-time"), &[]),
        server("git", peers.python("mcp-server-git"), &[]),
        server("web", peers.python("mcp-server-fetch"), &[]),
        server(
            "sqlite",
            peers.python_1("mcp-server-sqlite"),
            &["--db-path", "~/data.db"],
        ),
    ]
}

/// `conjure mcp serve` in front of servers, as one client reaches it.
pub(super) struct Gateway {
    pub(super) wire: Box<dyn Wire>,
    info: Value,
    _serving: Option<ProgramHandle>,
    _workspace: Workspace,
}

impl Gateway {
    fn start(server: &Server, over_http: bool, manner: Manner) -> Self {
        Self::of(server.workspace(), over_http, manner)
    }

    pub(super) fn of(workspace: Workspace, over_http: bool, manner: Manner) -> Self {
        if !over_http {
            let mut command = Command::new(conjure_bin().unwrap());
            command.arg("--plugin-dir").arg(workspace.plugins());
            command.arg("--data-dir").arg(workspace.data_dir());
            command.args(["mcp", "serve", "--stdio", "-c"]);
            command.arg(workspace.work().join("session.toml"));
            let wire = OverStdio::start(command, manner);
            return Self {
                info: wire.info.clone(),
                wire: Box::new(wire),
                _serving: None,
                _workspace: workspace,
            };
        }
        let serving = serve(&workspace);
        let url = url_of(&serving);
        let token = workspace.http_token().unwrap();
        let wire = Http::connect(&url, &token, manner);
        Self {
            info: wire.info.clone(),
            wire: Box::new(wire),
            _serving: Some(serving),
            _workspace: workspace,
        }
    }
}

fn serve(workspace: &Workspace) -> ProgramHandle {
    let served = "--json mcp serve --http 127.0.0.1:0 --config session.toml";
    let serving = cli(served.split(' ')).workspace(workspace).deadline(LIMIT);
    serving.start().unwrap()
}

fn url_of(serving: &ProgramHandle) -> String {
    let line = serving.wait_for_stdout("\n").unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    line["url"].as_str().unwrap().to_owned()
}

/// Arguments that fit a schema, as far as that is quickly done.
fn arguments(schema: &Value, dir: &Path) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    let short = |name: &str| matches!(name, "duration" | "steps");
    let all = schema["properties"].as_object().into_iter().flatten();
    let wanted = all.filter(|(name, _)| required.contains(&name.as_str()) || short(name));
    wanted
        .map(|(name, property)| {
            let value = match property["type"].as_str() {
                _ if property["enum"].is_array() => property["enum"][0].clone(),
                _ if short(name) => json!(1),
                Some("number" | "integer") => json!(2),
                Some("boolean") => json!(false),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ if name.contains("path") || name == "source" => json!(dir.join("note.txt")),
                _ if name.contains("timezone") => json!("UTC"),
                _ if name == "time" => json!("12:00"),
                _ if name == "url" => json!("http://127.0.0.1:1/"),
                _ => json!("word"),
            };
            (name.clone(), value)
        })
        .collect()
}

/// The directory that servers work on, as it is at the beginning.
pub(super) fn fresh(dir: &Path) {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir.join("inner")).unwrap();
    fs::write(dir.join("note.txt"), "a note\nof two lines\n").unwrap();
    fs::write(dir.join("large.txt"), "large ".repeat(30_000)).unwrap();
}

/// A value without numbers and without what was packed.
fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > 200 => json!("long"),
        Value::String(text) => json!(text.replace(|c: char| c.is_ascii_digit(), "0")),
        Value::Number(_) => json!(0),
        Value::Array(values) => values.iter().map(masked).collect(),
        Value::Object(fields) => {
            let one = |(name, value): (&String, &Value)| match name.as_str() {
                "blob" | "data" => (name.clone(), json!("packed")),
                _ => (name.clone(), masked(value)),
            };
            fields.iter().map(one).collect()
        }
        other => other.clone(),
    }
}

/// One request of a server.
pub(super) struct Asked {
    pub(super) method: &'static str,
    pub(super) params: Value,
    /// Whether it says something else each time.
    volatile: bool,
}

/// What a server sent.
pub(super) struct Sent {
    pub(super) lists: [Vec<Value>; 4],
    pub(super) answers: Vec<(Asked, Value)>,
}

impl Sent {
    /// Asks a server for everything.
    pub(super) fn by(wire: &mut dyn Wire, dir: &Path) -> Self {
        let asked = everything(wire, dir);
        let lists = LISTS.map(|(method, field)| entries(wire, method, field));
        let answered = asked.into_iter().map(|asked| {
            let answer = wire.ask(asked.method, &asked.params);
            (asked, answer)
        });
        Self {
            lists,
            answers: answered.collect(),
        }
    }

    /// What a client gets that is something else.
    pub(super) fn differences(&self, client: &mut dyn Wire) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((method, field), expected) in LISTS.iter().zip(&self.lists) {
            let listed = entries(client, method, field);
            if listed != *expected {
                let (listed, expected) = (json!(listed), json!(expected));
                wrong.push(format!("{method}\n  is {listed}\n  of {expected}"));
            }
        }
        for (asked, sent) in &self.answers {
            let got = client.ask(asked.method, &asked.params);
            let is_same = match asked.volatile {
                true => masked(&got) == masked(sent),
                false => bytes(&got) == bytes(sent),
            };
            if !is_same {
                let what = format!("{} {}", asked.method, asked.params);
                wrong.push(format!("{what}\n  is {got}\n  of {sent}"));
            }
        }
        wrong
    }
}

fn read(uri: &str) -> Asked {
    Asked {
        method: "resources/read",
        params: json!({ "uri": uri }),
        volatile: true,
    }
}

/// Every tool, resource and prompt of a server, what it refuses too.
fn everything(wire: &mut dyn Wire, dir: &Path) -> Vec<Asked> {
    let mut asked = Vec::new();
    for tool in wire.list("tools/list", "tools") {
        let name = tool["name"].as_str().unwrap();
        let volatile = VOLATILE.contains(&name);
        let mut call = |arguments: Value| {
            asked.push(Asked {
                method: "tools/call",
                params: json!({ "name": name, "arguments": arguments }),
                volatile,
            });
        };
        call(Value::Object(arguments(&tool["inputSchema"], dir)));
        match name {
            "read_text_file" => call(json!({ "path": dir.join("large.txt") })),
            "read_media_file" => call(json!({ "path": dir.join("none.png") })),
            "get-resource-links" => call(json!({ "count": 3 })),
            "get-annotated-message" => {
                call(json!({ "messageType": "error", "includeImage": true }));
            }
            "echo" => call(json!({ "message": 5 })),
            _ => {}
        }
    }
    for resource in wire.list("resources/list", "resources") {
        asked.push(read(resource["uri"].as_str().unwrap()));
    }
    for template in wire.list("resources/templates/list", "resourceTemplates") {
        let text = template["uriTemplate"].as_str().unwrap();
        let begin = text.split('{').next().unwrap();
        asked.extend([read(&format!("{begin}1")), read(&format!("{begin}x"))]);
    }
    for prompt in wire.list("prompts/list", "prompts") {
        let wanted = prompt["arguments"].as_array().into_iter().flatten();
        let filled = wanted.map(|one| (one["name"].as_str().unwrap().to_owned(), json!("1")));
        let filled = Value::Object(filled.collect());
        for arguments in [filled, json!({})] {
            asked.push(Asked {
                method: "prompts/get",
                params: json!({ "name": prompt["name"], "arguments": arguments }),
                volatile: false,
            });
        }
    }
    asked
}

pub(super) fn manner(modern: bool, capabilities: Value) -> Manner {
    Manner {
        modern,
        name: "client",
        capabilities,
    }
}

/// The gateway's entries of a list as the server would have said them.
fn entries(wire: &mut dyn Wire, method: &str, field: &str) -> Vec<Value> {
    let mut entries = wire.list(method, field);
    entries.retain(|entry| {
        let of_files = |name: &str| {
            let text = entry[name].as_str();
            text.is_some_and(|text| text.starts_with("conjure://artifact/"))
        };
        !of_files("uri") && !of_files("uriTemplate")
    });
    for entry in &mut entries {
        if let Some(meta) = entry.get_mut("_meta").and_then(Value::as_object_mut) {
            meta.remove("dev.conjure/mode");
            if meta.is_empty() {
                entry.as_object_mut().unwrap().remove("_meta");
            }
        }
    }
    entries.sort_by_key(by_name);
    entries
}

/// The order in which entries are compared.
pub(super) fn by_name(entry: &Value) -> String {
    entry["name"].to_string() + &entry["uri"].to_string()
}

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
];

/// A value to the letter: with the order of its members, and with each number as it is written.
fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap()
}

/// Compares what a client gets over one transport in one era with what each server sent.
fn compare(over_http: bool, modern: bool) {
    let Some(peers) = Peers::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for server in servers(&peers, root.path()) {
        fresh(&server.work);
        let mut direct = OverStdio::start(server.direct(), manner(false, json!({})));
        let mut sent = Sent::by(&mut direct, &server.work);
        // A gateway has resources, whether its server has any or not.
        let is_read = |(asked, _): &(Asked, Value)| asked.method == "resources/read";
        if sent.answers.iter().any(is_read) {
            let asked = read("demo://nothing/of/the/kind");
            let answer = direct.ask(asked.method, &asked.params);
            sent.answers.push((asked, answer));
        }
        let instructions = direct.info["instructions"].clone();
        drop(direct);

        fresh(&server.work);
        let mut gateway = Gateway::start(&server, over_http, manner(modern, json!({})));
        wrong.extend(sent.differences(&mut *gateway.wire));
        count += sent.answers.len();
        if let Some(text) = instructions.as_str() {
            let told = gateway.info["instructions"].as_str().unwrap_or_default();
            if !told.contains(text.trim()) {
                wrong.push(format!("instructions\n  is {told:?}\n  of {text:?}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
    assert!(count > 85, "only {count} were compared");
}

#[test]
fn all_that_a_server_sends_reaches_an_older_client_over_stdio_word_for_word() {
    compare(false, false);
}

#[test]
fn all_that_a_server_sends_reaches_a_newer_client_over_stdio_word_for_word() {
    compare(false, true);
}

#[test]
fn all_that_a_server_sends_reaches_an_older_client_over_http_word_for_word() {
    compare(true, false);
}

#[test]
fn all_that_a_server_sends_reaches_a_newer_client_over_http_word_for_word() {
    compare(true, true);
}

#[test]
fn a_client_sees_the_tools_that_a_server_has_for_what_it_can_answer() {
    let Some(peers) = Peers::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let server = servers(&peers, root.path()).swap_remove(0);
    fresh(&server.work);
    for capabilities in [
        json!({}),
        json!({ "sampling": {} }),
        json!({ "roots": {} }),
        json!({ "elicitation": {}, "sampling": {}, "roots": {} }),
    ] {
        let names = |wire: &mut dyn Wire| -> Vec<String> {
            let tools = entries(wire, "tools/list", "tools");
            let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
            names.map(str::to_owned).collect()
        };
        let legacy = manner(false, capabilities.clone());
        let mut direct = OverStdio::start(server.direct(), legacy);
        let expected = names(&mut direct);
        for (over_http, modern) in [(false, false), (false, true), (true, false), (true, true)] {
            let manner = manner(modern, capabilities.clone());
            let mut gateway = Gateway::start(&server, over_http, manner);
            let got = names(&mut *gateway.wire);
            assert_eq!(got, expected, "{capabilities} {over_http} {modern}");
        }
    }
}

#[test]
fn a_template_of_another_backend_leads_to_the_server_that_has_it() {
    let Some(peers) = Peers::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let mut servers = servers(&peers, root.path());
    let (sqlite, everything) = (servers.pop().unwrap(), servers.swap_remove(0));
    fresh(&sqlite.work);
    fresh(&everything.work);
    // The one that refuses comes first.
    let session = sqlite.session("one") + &everything.session("two");
    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    workspace.write("session.toml", session).unwrap();
    let mut gateway = Gateway::of(workspace, false, manner(false, json!({})));
    let mut read = |uri: &str| {
        let answer = gateway.wire.ask("resources/read", &json!({ "uri": uri }));
        answer["contents"][0]["uri"]
            .as_str()
            .map(str::to_owned)
            .ok_or(answer)
    };
    for uri in ["demo://resource/dynamic/text/3", "memo://insights"] {
        assert_eq!(read(uri).as_deref(), Ok(uri));
    }
    let refused = read("demo://nothing/of/the/kind").unwrap_err();
    assert!(refused["error"]["message"].is_string(), "{refused}");
}
