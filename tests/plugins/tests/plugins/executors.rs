//! A stranger's executor in the workers of sessions: each reaches its own session's directories and
//! skill folders, and nobody else's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_core::routing::Prefix;
use conjure_host::Host;
use conjure_host::plugin::{
    CallOptions, Instance, Isolation, NoServices, WorkerLimits, WorkerOptions,
};
use conjure_host::session::{BackendSpec, SessionSpec, ToolSession};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::{Bench, Plugin, envelope};
use conjure_skill_sdk::protocol::Create;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// What `conjure plugin create executor` writes.
const TEMPLATE: &str = include_str!("../../../../conjure-host/cli/templates/executor.rs.in");

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A host whose plugins run in workers, and the executor that somebody else wrote.
struct Stage {
    host: Host,
    dir: TempDir,
}

/// A session and where it works.
struct Working {
    calls: ToolSession,
    work: PathBuf,
}

fn library() -> PathBuf {
    let source = TEMPLATE
        .replace("{{title}}", "Stranger")
        .replace("{{name}}", "stranger");
    let plugin = Plugin {
        features: &["async"],
        ..Plugin::new("stranger", &source)
    };
    plugin.build()
}

impl Stage {
    async fn new() -> Self {
        Self::with(WorkerLimits::default()).await
    }

    async fn with(limits: WorkerLimits) -> Self {
        let library = library();
        let dir = tempfile::tempdir().unwrap();
        let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
        workers.isolation = Isolation::Process;
        workers.limits = limits;
        let host = Host::builder()
            .data_dir(dir.path().join("data"))
            .workers(workers)
            .plugin_file(library)
            .build()
            .await
            .unwrap();
        let stage = Self { host, dir };
        for (name, word) in [("songs", "greensleeves"), ("rounds", "frere jacques")] {
            let folder = stage.folder(name);
            fs::create_dir_all(&folder).unwrap();
            let text = format!("---\nname: {name}\ndescription: Words.\n---\n{word}\n");
            fs::write(folder.join("SKILL.md"), text).unwrap();
        }
        stage
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join("skills").join(name)
    }

    /// A session that has a skill folder and a file of its own.
    async fn session(&self, name: &str, folder: &str) -> Working {
        let work = self.dir.path().join(name);
        fs::create_dir_all(&work).unwrap();
        fs::write(work.join("own.txt"), format!("words of {name}")).unwrap();
        let folder = self.folder(folder).display().to_string();
        let spec = SessionSpec {
            working_dir: Some(work.clone()),
            ..SessionSpec::hybrid([BackendSpec {
                prefix: Prefix::Backend,
                ..BackendSpec::executor("stranger", [folder])
            }])
        };
        Working {
            calls: self.host.calls(spec).await.unwrap(),
            work: work.canonicalize().unwrap(),
        }
    }
}

impl Working {
    /// What a call says, and whether it is an error.
    async fn call(&self, tool: &str, arguments: Value) -> (String, bool) {
        let call = FunctionCall {
            call_id: "call-1".to_owned(),
            name: format!("stranger_{tool}"),
            arguments,
            arguments_text: None,
        };
        let cancel = CancellationToken::new();
        let called = tokio::time::timeout(LIMIT, self.calls.call(&call, &cancel)).await;
        let output = called.expect("the call ends").unwrap().output;
        let texts = output.output.iter().filter_map(|part| match part {
            OutputPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        (texts.collect(), output.is_error)
    }

    async fn bash(&self, command: &str) -> (String, bool) {
        self.call("bash_tool", json!({ "command": command })).await
    }

    async fn shows(&self, path: &Path, word: &str) {
        let (said, is_error) = self.bash(&format!("cat {}", path.display())).await;
        assert!(!is_error && said.contains(word), "{path:?}: {said}");
    }

    async fn refuses(&self, command: &str, word: &str) {
        let (said, is_error) = self.bash(command).await;
        assert!(is_error && !said.contains(word), "{command}: {said}");
        assert!(said.contains("Permission denied"), "{command}: {said}");
    }
}

/// The directories below this one in which sessions and their host exchange files.
fn exchange_dirs(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap().flatten() {
        let path = entry.path();
        if entry.file_name() == "exchange" {
            found.push(path);
        } else if entry.file_type().unwrap().is_dir() {
            found.extend(exchange_dirs(&path));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_executor_reaches_its_sessions_directories_and_no_other_sessions() {
    let stage = Stage::new().await;
    let ada = stage.session("ada", "songs").await;
    let bob = stage.session("bob", "rounds").await;
    let (songs, rounds) = (stage.folder("songs"), stage.folder("rounds"));
    let exchanges = exchange_dirs(&stage.dir.path().join("data"));
    assert_eq!(exchanges.len(), 2, "{exchanges:?}");
    for exchange in &exchanges {
        fs::write(exchange.join("crossing"), "a secret of a session").unwrap();
    }
    for (session, other, own, others, word, theirs) in [
        (&ada, &bob, &songs, &rounds, "greensleeves", "frere jacques"),
        (&bob, &ada, &rounds, &songs, "frere jacques", "greensleeves"),
    ] {
        session
            .shows(&session.work.join("own.txt"), "words of ")
            .await;
        session.shows(&own.join("SKILL.md"), word).await;
        let (brought, _) = session.bash("cat ../skills/*/SKILL.md").await;
        assert!(brought.contains(word), "{brought}");
        session
            .refuses(
                &format!("cat {}/own.txt", other.work.display()),
                "words of ",
            )
            .await;
        session
            .refuses(&format!("ls {}", other.work.display()), "own")
            .await;
        session
            .refuses(
                &format!("echo x >{}/new", other.work.display()),
                "words of ",
            )
            .await;
        session
            .refuses(&format!("cat {}/SKILL.md", others.display()), theirs)
            .await;
        // A skill folder is there to be read.
        session
            .refuses(&format!("echo x >>{}/SKILL.md", own.display()), word)
            .await;
    }
    // Of the directories where files are exchanged each has its own.
    let mut shown = 0;
    for exchange in &exchanges {
        let file = exchange.join("crossing").display().to_string();
        for session in [&ada, &bob] {
            let (said, is_error) = session.bash(&format!("cat {file}")).await;
            shown += usize::from(!is_error);
            assert_eq!(is_error, !said.contains("a secret"), "{said}");
        }
    }
    assert_eq!(shown, 2);
    ada.calls.close().await;
    bob.calls.close().await;
}

/// What an instance answers.
async fn asked(instance: &Instance, op: &str, body: Value) -> Value {
    let asked = instance.request(op, envelope(&body), CallOptions::default());
    serde_json::from_slice(&asked.await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_has_its_session_also_when_another_one_ends_with_it() {
    let bench = Bench::new();
    let plugin = bench.load(&library());
    let own = bench.dir.join("own");
    let create = Create {
        data_dir: Some(own.display().to_string()),
        ..Bench::create()
    };
    let mut instances = Vec::new();
    for _ in 0..2 {
        let made = plugin.create(&create, Arc::new(NoServices)).await.unwrap();
        asked(&made, "executor.init", json!({})).await;
        instances.push(made);
    }
    let [before, next] = instances.as_slice() else {
        panic!("two were made");
    };
    asked(before, "executor.cleanup", json!({})).await;
    let command = json!({ "command": "echo there >made.txt; cat made.txt" });
    let ran = asked(next, "executor.bash", command).await;
    assert_eq!(ran["stdout"], "there\n", "{ran}");
    asked(next, "executor.cleanup", json!({})).await;
    let left = fs::read_dir(own.join("sessions")).unwrap().count();
    assert_eq!(left, 0, "the last one leaves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_executor_exchanges_files_with_its_session_both_ways() {
    let stage = Stage::new().await;
    let session = stage.session("ada", "songs").await;
    let artifacts = session.calls.artifacts();
    let input = json!({ "path": "made/by it.txt", "file_text": "from there", "description": "" });
    let (said, is_error) = session.call("create_file", input).await;
    assert!(!is_error, "{said}");
    let made = artifacts.list().pop().expect("the host knows the file");
    let here = artifacts.resolve(&made.id).await.unwrap();
    assert_eq!(fs::read_to_string(here).unwrap(), "from there");
    let given = artifacts
        .spill("another", "given.txt", "from here")
        .unwrap();
    let (said, is_error) = session.call("view", json!({ "path": given.id })).await;
    assert!(!is_error && said.contains("from here"), "{said}");
    session.calls.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_worker_of_a_session_reaches_what_the_one_before_did() {
    let stage = Stage::new().await;
    let session = stage.session("ada", "songs").await;
    let bystander = stage.session("bob", "rounds").await;
    let (said, is_error) = session.bash("kill -KILL $PPID").await;
    assert!(is_error && said.contains("worker process"), "{said}");
    session.shows(&session.work.join("own.txt"), "of ada").await;
    let songs = stage.folder("songs").join("SKILL.md");
    session.shows(&songs, "greensleeves").await;
    bystander
        .shows(&bystander.work.join("own.txt"), "of bob")
        .await;
    let plugin = stage.host.registry().snapshot();
    assert_eq!(plugin.get("stranger").unwrap().health().worker_ends, 1);
    session.calls.close().await;
    bystander.calls.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_has_an_executor_compute_is_no_time_of_its_worker() {
    let limits = WorkerLimits {
        processor_time: Duration::from_secs(1),
        ..WorkerLimits::default()
    };
    let stage = Stage::with(limits).await;
    let session = stage.session("ada", "songs").await;
    // The kernel ends it after as many seconds of a processor.
    let command = "sh -c 'ulimit -t 4; while :; do :; done'; echo went on";
    let (output, is_error) = session.bash(command).await;
    assert!(!is_error && output.contains("went on"), "{output}");
}
