//! Every operation of the protocol, asked of every kind of plugin, by both of the ABI's
//! functions, directly and over a pipe.

use conjure_skill_sdk::Skill;
use conjure_skill_sdk::protocol::{Modify, ToolResult, Write, op};
use conjure_skill_sdk::testkit::{
    Message, Outcome, Plugin, RunningCall, TestHostBuilder, Transport,
};
use serde_json::{Value, json};

use crate::{arguments, docker_like, hosted_like, mcp_like, skill_lists};

/// One run of everything: what came of each call, and what crossed.
pub(crate) struct Run {
    outcomes: Vec<(String, Outcome)>,
    pub(crate) messages: Vec<Message>,
}

pub(crate) fn run(transport: Transport) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run {
        outcomes: Vec::new(),
        messages: Vec::new(),
    };
    // Plugins begin on the same files in every run.
    let file = dir.path().join("in.txt");
    std::fs::write(&file, "content").unwrap();
    let at = |host: TestHostBuilder| {
        let dir = dir.path().to_str().unwrap();
        host.working_dir("/work").exchange_dir(dir).build().unwrap()
    };
    let host = at(docker_like::host(transport));
    run.all(dir.path(), &host.link(skill).unwrap());
    run.all(dir.path(), &host.link(docker_like::plugin).unwrap());
    run.messages.extend(host.transcript());
    let host = at(skill_lists::host(transport));
    run.all(dir.path(), &host.link(skill_lists::skill).unwrap());
    run.messages.extend(host.transcript());
    let host = at(mcp_like::host(transport));
    run.all(dir.path(), &host.link(mcp_like::plugin).unwrap());
    run.messages.extend(host.transcript());
    let host = at(hosted_like::host(transport, 2));
    run.all(dir.path(), &host.link(hosted_like::plugin).unwrap());
    run.messages.extend(host.transcript());
    let here = dir.path().to_str().unwrap();
    for (_, outcome) in &mut run.outcomes {
        if let Ok(reply) = &mut outcome.reply {
            *reply = serde_json::from_str(&reply.to_string().replace(here, "DIR")).unwrap();
        }
    }
    run
}

/// A skill with every callback.
fn skill() -> Skill {
    arguments::skill()
        .write("any path", |_cx, write: Write| {
            format!("{} = {}", write.path, write.content)
        })
        .modify("any path", |_cx, m: Modify| {
            format!("{}: {} -> {}", m.path, m.old_content, m.new_content)
        })
}

impl Run {
    fn all(&mut self, dir: &std::path::Path, plugin: &Plugin) {
        let name = plugin.manifest().name.clone();
        // What ends a session comes last.
        let ends = |op: &&&str| [op::EXECUTOR_CLEANUP, op::BACKEND_CLOSE].contains(*op);
        let operations = op::ALL.iter().filter(|op| !ends(op));
        for operation in operations.chain(op::ALL.iter().filter(ends)) {
            let mut operation = (*operation).to_owned();
            if operation == op::SKILL_TOOL {
                operation.push_str("top");
            }
            let body = body(&operation, dir, &name);
            let called = if operation == op::BACKEND_WATCH {
                cancelled(&name, plugin.background(&operation, &body))
            } else {
                plugin.call(&operation, &body)
            };
            self.outcomes
                .push((format!("{name} call {operation}"), called.settled()));
            remove(dir);
            let started = plugin.start(&operation, &body);
            let started = if operation == op::BACKEND_WATCH {
                cancelled(&name, started)
            } else {
                started.wait()
            };
            self.outcomes
                .push((format!("{name} start {operation}"), started.settled()));
            remove(dir);
        }
    }
}

/// Cancels a watch once it stands.
fn cancelled(plugin: &str, watch: RunningCall) -> Outcome {
    if plugin == "mcp-like" {
        assert!(watch.until(|seen| seen.events.len() == 1));
    }
    watch.cancel();
    watch.wait()
}

fn remove(dir: &std::path::Path) {
    let _ = std::fs::remove_file(dir.join("out.txt"));
}

fn body(operation: &str, dir: &std::path::Path, plugin: &str) -> Value {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    match operation {
        op::SKILL_EXECUTE if plugin == "library" => json!({ "command": "ask" }),
        op::SKILL_EXECUTE => json!({ "command": "echo" }),
        op::SKILL_READ => json!({ "path": "stats", "limit": 3 }),
        op::SKILL_WRITE => json!({ "path": "a", "content": "b" }),
        op::SKILL_MODIFY => json!({ "path": "a", "old_content": "b", "new_content": "c" }),
        "skill.tool.top" => json!({ "count": 2 }),
        op::EXECUTOR_INIT => docker_like::init(),
        op::EXECUTOR_BASH => json!({ "command": "write out.txt", "keep_bytes": 100 }),
        op::EXECUTOR_VIEW => json!({ "path": "out.txt", "view_range": [1, -1] }),
        op::EXECUTOR_CREATE_FILE => json!({ "path": "a.txt", "file_text": "x" }),
        op::EXECUTOR_STR_REPLACE => json!({ "path": "a.txt", "old_str": "x", "new_str": "x" }),
        op::BACKEND_OPEN | op::BACKEND_REOPEN => hosted_like::open(),
        op::BACKEND_CALL if plugin == "hosted-like" => {
            json!({ "name": "code_execution", "arguments": { "task": "t" } })
        }
        op::BACKEND_CALL => json!({ "name": "book", "arguments": {} }),
        op::BACKEND_CONTRIBUTE => json!({ "provider": "anthropic", "model": "m" }),
        op::BACKEND_OBSERVE => json!({
            "provider": "anthropic",
            "model": "m",
            "server_items": [{ "content": { "content": [{ "file_id": "file_1" }] } }],
        }),
        op::RESOURCE_READ | op::RESOURCE_SUBSCRIBE | op::RESOURCE_UNSUBSCRIBE => {
            json!({ "uri": "note://today" })
        }
        op::PROMPT_GET => json!({ "name": "plan", "arguments": { "day": "monday" } }),
        op::COMPLETE => json!({ "reference": {}, "argument": "day", "value": "m" }),
        op::FILES_PUT => json!({ "file": { "name": "in.txt", "path": path("in.txt") } }),
        op::FILES_GET => json!({ "id": "/mnt/skills/analyzer/SKILL.md", "to": path("out.txt") }),
        op::STATE_IMPORT => json!({ "version": "1.0.0", "state": { "kept": 1 } }),
        op::EXECUTOR_CLEANUP
        | op::BACKEND_CATALOG
        | op::BACKEND_CLOSE
        | op::BACKEND_WATCH
        | op::RESOURCE_LIST
        | op::SKILL_TOOLS
        | op::PROMPT_LIST
        | op::STATE_EXPORT
        | op::PING
        | op::SHUTDOWN => json!({}),
        other => panic!("this test has no request for `{other}`: add one"),
    }
}

#[test]
fn every_operation_gives_the_same_directly_and_over_a_pipe() {
    let direct = run(Transport::Direct);
    let pipe = run(Transport::Pipe);
    for (here, there) in direct.outcomes.iter().zip(&pipe.outcomes) {
        assert_eq!(here, there);
    }
    assert_eq!(direct.outcomes.len(), pipe.outcomes.len());
    assert_eq!(direct.outcomes.len(), 5 * 2 * op::ALL.len());
    let text = |asked: &str| {
        let (_, outcome) = direct
            .outcomes
            .iter()
            .find(|(name, _)| name == asked)
            .unwrap();
        outcome.result().unwrap()
    };
    assert_eq!(text("store call skill.write"), ToolResult::text("a = b"));
    assert_eq!(
        text("store call skill.modify"),
        ToolResult::text("a: b -> c")
    );
    for operation in op::ALL {
        let answered = direct.outcomes.iter().any(|(name, outcome)| {
            let asked = name.rsplit(' ').next().unwrap();
            outcome.reply.is_ok() && asked.starts_with(operation)
        });
        assert!(answered, "no plugin here answers `{operation}`");
    }
}
