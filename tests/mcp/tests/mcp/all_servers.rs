//! The reference servers, all of them in one session behind `conjure mcp serve`: each tool, resource
//! and prompt leads to the server that has it, and what comes back is what that one sent. One server
//! at a time, which `word_for_word` has, shows nothing of that.

use conjure_kit::Workspace;
use serde_json::{Value, json};

use crate::peers::Peers;
use crate::wire::OverStdio;
use crate::word_for_word::{Asked, Gateway, Sent, Server, by_name, fresh, manner, servers};

/// An alias of a tool, beside the prefixes of the others.
const ROUTING: &str = "[routing]\n\
    aliases = [{ backend = \"mcp\", skill = \"everything\", tool = \"echo\", name = \"say\" }]\n";
/// The most characters of a name that keeps its prefix, as `mcp.md` says.
const MOST: usize = 40;

/// The name under which a tool of a server is served.
fn served_name(server: &str, tool: &str) -> String {
    let public = format!("{server}_{tool}");
    match (server, tool) {
        ("everything", "echo") => "say".to_owned(),
        _ if public.len() > MOST => tool.to_owned(),
        _ => public,
    }
}

/// A session with all servers in one backend; those that can speak the newer era where it is wanted.
fn session(servers: &[Server], modern: bool) -> String {
    let entries = servers.iter();
    let entries = entries.map(|server| server.entry(server.name, modern && server.is_new));
    let entries: String = entries.collect();
    format!(
        "{ROUTING}[[backend]]\nkind = \"mcp\"\n[backend.config]\ncatalog_wait_ms = 60000\n{entries}"
    )
}

/// What a server sent, with its tools named as they are served.
fn sent_by(server: &Server, modern: bool) -> Sent {
    fresh(&server.work);
    let manner = manner(modern && server.is_new, json!({}));
    let mut direct = OverStdio::start(server.direct(), manner);
    let mut sent = Sent::by(&mut direct, &server.work);
    let renamed = |entry: &mut Value| {
        let name = entry["name"].as_str().unwrap();
        entry["name"] = json!(served_name(server.name, name));
    };
    let [tools, ..] = &mut sent.lists;
    tools.iter_mut().for_each(renamed);
    let asked = sent.answers.iter_mut().map(|(asked, _)| asked);
    let calls = asked.filter(|asked| asked.method == "tools/call");
    calls.for_each(|call| renamed(&mut call.params));
    sent
}

/// All of it as of one server. The servers take turns, request by request.
fn together(all: Vec<Sent>) -> Sent {
    let mut lists = [const { Vec::new() }; 4];
    let mut answers: Vec<(usize, (Asked, Value))> = Vec::new();
    for sent in all {
        for (list, more) in lists.iter_mut().zip(sent.lists) {
            list.extend(more);
        }
        answers.extend(sent.answers.into_iter().enumerate());
    }
    lists.iter_mut().for_each(|list| list.sort_by_key(by_name));
    answers.sort_by_key(|(turn, _)| *turn);
    Sent {
        lists,
        answers: answers.into_iter().map(|(_, answer)| answer).collect(),
    }
}

/// Compares what a client gets through one session with what each server sent. `modern_peers`:
/// whether servers are asked in the newer era where they speak it.
fn compare(modern_peers: bool, over_http: bool, modern_client: bool) {
    let Some(peers) = Peers::find() else { return };
    let root = tempfile::tempdir().unwrap();
    let servers = servers(&peers, root.path());
    let all = servers.iter().map(|server| sent_by(server, modern_peers));
    let sent = together(all.collect());
    servers.iter().for_each(|server| fresh(&server.work));

    let workspace = Workspace::new().unwrap();
    workspace.add_plugin("conjure-backend-mcp").unwrap();
    let session = session(&servers, modern_peers);
    workspace.write("session.toml", session).unwrap();
    let manner = manner(modern_client, json!({}));
    let mut gateway = Gateway::of(workspace, over_http, manner);
    let wrong = sent.differences(&mut *gateway.wire);
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
    let counts = sent.lists.map(|list| list.len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(sent.answers.len() > 80, "{}", sent.answers.len());
    // Several servers may have it, and none says that it does.
    let uri = json!({ "uri": "demo://nothing/of/the/kind" });
    let refused = gateway.wire.ask("resources/read", &uri);
    assert!(refused["error"]["message"].is_string(), "{refused}");
}

#[test]
fn seven_older_servers_reach_an_older_client_word_for_word() {
    compare(false, false, false);
}

#[test]
fn seven_older_servers_reach_a_newer_client_over_http_word_for_word() {
    compare(false, true, true);
}

#[test]
fn seven_servers_of_both_eras_reach_a_newer_client_word_for_word() {
    compare(true, false, true);
}

#[test]
fn seven_servers_of_both_eras_reach_an_older_client_over_http_word_for_word() {
    compare(true, true, false);
}
