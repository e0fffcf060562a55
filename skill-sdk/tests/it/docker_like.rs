//! A backend like Docker, without Docker: an executor whose sessions are containers with paths
//! of their own, whose output streams, and which cleans up before a cancelled command returns.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use conjure_skill_sdk::abi::{LogLevel, code};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    SkillMount, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::testkit::{Outcome, TestHost, TestHostBuilder, Transport};
use conjure_skill_sdk::{Cx, Error, Executor, ExecutorPlugin, Files, Result, Setup};
use serde_json::json;

/// A container: its files by absolute path.
#[derive(Default)]
struct Container {
    files: BTreeMap<String, String>,
}

pub(crate) struct Containers {
    image: String,
    sessions: Mutex<HashMap<String, Container>>,
}

pub(crate) fn plugin() -> ExecutorPlugin<Containers> {
    ExecutorPlugin::new("docker-like", "Containers in memory", |setup: Setup| {
        Ok(Containers {
            image: setup.create.config["image"]
                .as_str()
                .unwrap_or("default")
                .to_owned(),
            sessions: Mutex::default(),
        })
    })
    .config_schema(json!({
        "type": "object",
        "properties": { "image": { "type": "string" } },
    }))
    .with_files()
}

impl Containers {
    fn inside<T>(&self, cx: &Cx, run: impl FnOnce(&mut Container) -> Result<T>) -> Result<T> {
        let session = cx.session().unwrap_or_default();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let container = sessions
            .get_mut(session)
            .ok_or_else(|| Error::not_found("no container runs for this session"))?;
        run(container)
    }

    /// Counts to `lines` on standard output, one piece a line.
    async fn count(&self, cx: &Cx, lines: u32) -> Result<String> {
        let mut all = String::new();
        for line in 1..=lines {
            let text = format!("line {line}\n");
            cx.stdout_async(text.as_bytes()).await?;
            all.push_str(&text);
        }
        Ok(all)
    }

    /// Runs until it is cancelled; then removes what it left behind, and only then returns.
    async fn hang(&self, cx: &Cx) -> Result<BashOutput> {
        self.inside(cx, |container| {
            container.files.insert(path("lock"), "held".into());
            Ok(())
        })?;
        cx.stderr_async(b"waiting\n").await?;
        cx.until_cancelled().await;
        self.inside(cx, |container| {
            container.files.remove(&path("lock"));
            Ok(())
        })?;
        cx.kv_set_async("killed", json!(cx.session())).await?;
        Err(Error::cancelled())
    }
}

fn path(name: &str) -> String {
    if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/workspace/{name}")
    }
}

impl Executor for Containers {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        cx.log(LogLevel::Info, format!("starts {}", self.image));
        let mut container = Container::default();
        let mut skills = Vec::new();
        for skill in request.skills {
            let dir = format!("/mnt/skills/{}", skill.name);
            let note = format!("mounted from {}", skill.dir);
            container.files.insert(format!("{dir}/SKILL.md"), note);
            skills.push(SkillMount {
                name: skill.name,
                dir,
            });
        }
        for (name, value) in request.env {
            container.files.insert(format!("/env/{name}"), value);
        }
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(cx.session().unwrap_or_default().to_owned(), container);
        Ok(ExecutorReady {
            working_dir: "/workspace".into(),
            skills,
        })
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        let (command, argument) = request
            .command
            .split_once(' ')
            .unwrap_or((request.command.as_str(), ""));
        let mut output = BashOutput {
            exit_code: Some(0),
            ..BashOutput::default()
        };
        match command {
            "pwd" => output.stdout = "/workspace\n".into(),
            "count" => output.stdout = self.count(&cx, argument.parse()?).await?,
            "fail" => {
                output.exit_code = Some(1);
                output.stderr = format!("{argument}\n");
            }
            "hang" => return self.hang(&cx).await,
            "write" => {
                self.inside(&cx, |container| {
                    container.files.insert(path(argument), "made".into());
                    Ok(())
                })?;
                output.files = vec![FileRef::lazy(path(argument), argument)];
            }
            other => {
                output.exit_code = Some(127);
                output.stderr = format!("{other}: not found\n");
            }
        }
        output.stdout_bytes = output.stdout.len() as u64;
        output.stderr_bytes = output.stderr.len() as u64;
        Ok(output)
    }

    async fn view(&self, cx: Cx, request: View) -> Result<Viewed> {
        self.inside(&cx, |container| {
            if let Some(content) = container.files.get(&path(&request.path)) {
                return Ok(Viewed {
                    content: content.clone(),
                    total_lines: Some(content.lines().count() as u64),
                    ..Viewed::default()
                });
            }
            let inside = format!("{}/", path(&request.path).trim_end_matches('/'));
            let mut content = String::new();
            for name in container.files.keys().filter(|f| f.starts_with(&inside)) {
                writeln!(content, "{name}")?;
            }
            if content.is_empty() {
                return Err(Error::not_found(format!("{} does not exist", request.path)));
            }
            Ok(Viewed {
                content,
                directory: true,
                ..Viewed::default()
            })
        })
    }

    async fn create_file(&self, cx: Cx, request: CreateFile) -> Result<Written> {
        self.inside(&cx, |container| {
            let text = request.file_text.unwrap_or_default();
            let before = container.files.insert(path(&request.path), text);
            Ok(Written {
                file: FileRef::lazy(path(&request.path), request.path),
                replaced: before.is_some(),
            })
        })
    }

    async fn str_replace(&self, cx: Cx, request: StrReplace) -> Result<Written> {
        self.inside(&cx, |container| {
            let Some(content) = container.files.get_mut(&path(&request.path)) else {
                return Err(Error::not_found(format!("{} does not exist", request.path)));
            };
            match content.matches(&request.old_str).count() {
                1 => {
                    *content = content.replacen(&request.old_str, &request.new_str, 1);
                    Ok(Written {
                        file: FileRef::lazy(path(&request.path), request.path),
                        replaced: true,
                    })
                }
                count => Err(Error::new(format!(
                    "the passage is there {count} times, and must be there once"
                ))),
            }
        })
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(cx.session().unwrap_or_default());
        Ok(())
    }
}

impl Files for Containers {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        let from = request.file.path.unwrap_or_default();
        let content = std::fs::read_to_string(from)?;
        let to = path(&request.file.name);
        self.inside(&cx, |container| {
            container.files.insert(to.clone(), content);
            Ok(())
        })?;
        Ok(FileRef::lazy(to, request.file.name))
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        let content = self.inside(&cx, |container| {
            let found = container.files.get(&request.id).cloned();
            found.ok_or_else(|| Error::not_found(format!("no file {}", request.id)))
        })?;
        std::fs::write(&request.to, &content)?;
        Ok(FileRef {
            size: Some(content.len() as u64),
            ..FileRef::at(request.to)
        })
    }
}

pub(crate) fn host(transport: Transport) -> TestHostBuilder {
    TestHost::builder()
        .transport(transport)
        .session("s1")
        .config(json!({ "image": "tiny" }))
}

pub(crate) fn init() -> serde_json::Value {
    json!({
        "skills": [{ "name": "analyzer", "dir": "/home/ada/skills/analyzer" }],
        "env": { "LANG": "C" },
    })
}

fn life_of_a_session(transport: Transport) -> Vec<Outcome> {
    let host = host(transport).capacity(2).build().unwrap();
    let plugin = host.link(plugin).unwrap();
    let mut outcomes = vec![
        plugin.call("executor.init", init()),
        plugin.call("executor.bash", json!({ "command": "pwd" })),
        plugin.call("executor.bash", json!({ "command": "count 40" })),
        plugin.call("executor.bash", json!({ "command": "fail so it goes" })),
        plugin.call("executor.view", json!({ "path": "/mnt/skills" })),
        plugin.call(
            "executor.create_file",
            json!({ "path": "a.txt", "file_text": "one two one" }),
        ),
        plugin.call(
            "executor.str_replace",
            json!({ "path": "a.txt", "old_str": "one", "new_str": "1" }),
        ),
        plugin.call(
            "executor.str_replace",
            json!({ "path": "a.txt", "old_str": "two", "new_str": "2" }),
        ),
        plugin.call("executor.view", json!({ "path": "a.txt" })),
        plugin
            .session("somebody else")
            .call("executor.view", json!({ "path": "a.txt" })),
    ];
    let hanging = plugin.start("executor.bash", json!({ "command": "hang" }));
    assert!(hanging.until(|seen| seen.stderr == b"waiting\n"));
    hanging.cancel();
    outcomes.push(hanging.wait());
    assert_eq!(
        host.kv()["killed"],
        "s1",
        "it cleaned up before it returned"
    );
    outcomes.push(plugin.call("executor.view", json!({ "path": "lock" })));
    outcomes.push(plugin.call("executor.cleanup", json!({})));
    outcomes.push(plugin.call("executor.view", json!({ "path": "a.txt" })));
    outcomes.into_iter().map(Outcome::settled).collect()
}

#[test]
fn a_container_session_is_the_same_directly_and_over_a_pipe() {
    let direct = life_of_a_session(Transport::Direct);
    assert_eq!(direct, life_of_a_session(Transport::Pipe));

    let ready: ExecutorReady = direct[0].parse().unwrap();
    assert_eq!(ready.working_dir, "/workspace");
    assert_eq!(ready.skills[0].dir, "/mnt/skills/analyzer");
    assert_eq!(direct[0].logs[0].message, "starts tiny");
    let counted: BashOutput = direct[2].parse().unwrap();
    assert_eq!(direct[2].stdout, counted.stdout.as_bytes());
    assert_eq!(counted.stdout.lines().count(), 40);
    let failed: BashOutput = direct[3].parse().unwrap();
    assert_eq!(
        (failed.exit_code, failed.stderr.as_str()),
        (Some(1), "so it goes\n")
    );
    assert!(direct[6].text().contains("2 times"));
    assert_eq!(direct[8].parse::<Viewed>().unwrap().content, "one 2 one");
    assert_eq!(direct[9].code(), Some(code::NOT_FOUND));
    assert_eq!(direct[10].code(), Some(code::CANCELLED));
    assert_eq!(direct[11].code(), Some(code::NOT_FOUND), "the lock is gone");
    assert_eq!(direct[13].code(), Some(code::NOT_FOUND));
}

#[test]
fn a_full_channel_holds_output_up_and_loses_none() {
    let host = host(Transport::Direct).capacity(1).build().unwrap();
    let plugin = host.link(plugin).unwrap();
    plugin.call("executor.init", init()).reply.unwrap();
    let counted = plugin.call("executor.bash", json!({ "command": "count 50" }));
    assert!(counted.fulls > 0, "the channel of one piece was never full");
    let lines: String = (1..=50).fold(String::new(), |mut all, line| {
        writeln!(all, "line {line}").unwrap();
        all
    });
    assert_eq!(String::from_utf8(counted.stdout).unwrap(), lines);
}
