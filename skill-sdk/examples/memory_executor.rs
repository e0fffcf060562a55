//! An executor: four operations, out of which the host makes the tools of skill folders.
//!
//! `cargo run -p conjure-skill-sdk --features testkit --example memory_executor` drives it without a
//! host. Its machine is a table in memory, and its only commands are `ls` and `wc`; the paths, exit
//! codes and errors are what an executor of a real machine gives.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, StrReplace, View, Viewed,
    Written,
};
use conjure_skill_sdk::testkit::Plugin;
use conjure_skill_sdk::{
    Blocking, BlockingExecutor, Cx, Error, ExecutorPlugin, Result, export_executor,
};
use serde_json::json;

/// Files by session and path: one instance serves all sessions.
#[derive(Default)]
struct Machine {
    files: Mutex<BTreeMap<(String, String), String>>,
}

impl Machine {
    fn with<T>(&self, run: impl FnOnce(&mut BTreeMap<(String, String), String>) -> T) -> T {
        run(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, cx: &Cx, path: &str) -> Result<String> {
        let file = self.with(|files| files.get(&key(cx, path)).cloned());
        file.ok_or_else(|| Error::not_found(format!("{path} does not exist: `ls` lists the files")))
    }

    fn write(&self, cx: &Cx, path: &str, text: String) -> Written {
        let before = self.with(|files| files.insert(key(cx, path), text));
        Written {
            file: FileRef::lazy(path, path),
            replaced: before.is_some(),
        }
    }

    fn list(&self, cx: &Cx) -> String {
        let session = cx.session().unwrap_or_default();
        self.with(|files| {
            let own = files.keys().filter(|(owner, _)| owner == session);
            own.map(|(_, path)| format!("{path}\n")).collect()
        })
    }
}

fn key(cx: &Cx, path: &str) -> (String, String) {
    (cx.session().unwrap_or_default().to_owned(), path.to_owned())
}

impl BlockingExecutor for Machine {
    fn init(&self, _cx: &Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        Ok(ExecutorReady {
            working_dir: "/workspace".to_owned(),
            skills: request.skills,
        })
    }

    /// A command that fails is no error: the model reads its output and its exit code.
    fn bash(&self, cx: &Cx, request: Bash) -> Result<BashOutput> {
        let words: Vec<&str> = request.command.split_whitespace().collect();
        let (exit_code, stdout, stderr) = match words.as_slice() {
            ["ls"] => (0, self.list(cx), String::new()),
            ["wc", path] => match self.read(cx, path) {
                Ok(text) => (0, format!("{}\n", text.lines().count()), String::new()),
                Err(error) => (1, String::new(), format!("{}\n", error.message())),
            },
            _ => (
                127,
                String::new(),
                format!("{}: not found\n", request.command),
            ),
        };
        // What is emitted is shown while the command runs.
        cx.stdout(stdout.as_bytes())?;
        cx.stderr(stderr.as_bytes())?;
        Ok(BashOutput {
            exit_code: Some(exit_code),
            stdout_bytes: stdout.len() as u64,
            stderr_bytes: stderr.len() as u64,
            stdout,
            stderr,
            ..BashOutput::default()
        })
    }

    fn view(&self, cx: &Cx, request: View) -> Result<Viewed> {
        let content = self.read(cx, &request.path)?;
        Ok(Viewed {
            total_lines: Some(content.lines().count() as u64),
            content,
            ..Viewed::default()
        })
    }

    fn create_file(&self, cx: &Cx, request: CreateFile) -> Result<Written> {
        let text = request.file_text.unwrap_or_default();
        Ok(self.write(cx, &request.path, text))
    }

    fn str_replace(&self, cx: &Cx, request: StrReplace) -> Result<Written> {
        let text = self.read(cx, &request.path)?;
        match text.matches(&request.old_str).count() {
            1 => {
                let text = text.replacen(&request.old_str, &request.new_str, 1);
                Ok(self.write(cx, &request.path, text))
            }
            count => Err(Error::invalid(format!(
                "the passage is there {count} times: give more of what stands around it"
            ))),
        }
    }
}

fn plugin() -> ExecutorPlugin<Blocking<Machine>> {
    ExecutorPlugin::new("memory", "A machine in memory", |_setup| {
        Ok(Blocking::new(Machine::default()))
    })
}

export_executor!(plugin, name = "memory");

fn main() -> Result<()> {
    let plugin = Plugin::linked(plugin)?;
    plugin.call("executor.init", json!({})).reply?;
    let file = json!({ "path": "list.txt", "file_text": "tea\nbread\n" });
    plugin.call("executor.create_file", file).reply?;
    let change = json!({ "path": "list.txt", "old_str": "bread", "new_str": "rye bread" });
    plugin.call("executor.str_replace", change).reply?;
    for command in ["ls", "wc list.txt", "make coffee"] {
        let output: BashOutput = plugin
            .call("executor.bash", json!({ "command": command }))
            .parse()?;
        let code = output.exit_code.unwrap_or(-1);
        println!(
            "$ {command}\n{}{}exit code {code}",
            output.stdout, output.stderr
        );
    }
    let viewed: Viewed = plugin
        .call("executor.view", json!({ "path": "list.txt" }))
        .parse()?;
    println!("list.txt:\n{}", viewed.content);
    let other = plugin.session("another");
    println!(
        "in another session: {:?}",
        other
            .call("executor.view", json!({ "path": "list.txt" }))
            .text()
    );
    Ok(())
}
