//! Files: viewing, writing, replacing, and the artifacts that come of calls.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_core::chat::Event;
use conjure_host::artifacts::FileError;
use conjure_host::session::BackendSpec;
use conjure_mock_llm::Message;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, Execute, FileRef, FilesGet, FilesPut, StrReplace, ToolResult,
    View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Executor, ExecutorPlugin, Files, Result, Skill};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::elsewhere::{ELSEWHERE, elsewhere, server_result};
use crate::stage::{FETCHER, LOCAL, MISBEHAVING, Seen, Stage, bash, in_time, local};

fn view(path: &str) -> (&'static str, Value) {
    ("local_view", json!({ "path": path }))
}

fn range(path: &str, first: i64, last: i64) -> (&'static str, Value) {
    (
        "local_view",
        json!({ "path": path, "view_range": [first, last] }),
    )
}

fn create(path: &str, text: &str) -> (&'static str, Value) {
    (
        "local_create_file",
        json!({ "path": path, "file_text": text, "description": "" }),
    )
}

fn replace(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    let input = json!({ "path": path, "old_str": old, "new_str": new, "description": "" });
    ("local_str_replace", input)
}

#[tokio::test]
async fn p06_a_file_a_range_and_a_directory_are_shown() {
    let stage = Stage::new(&[LOCAL]).await;
    stage.workspace.write("a.txt", "1\n2\n3\n4\n").unwrap();
    stage.workspace.write("src/deep/deeper/x", "").unwrap();
    stage.workspace.write("src/main.rs", "").unwrap();
    let session = stage.session([local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                view("a.txt"),
                range("a.txt", 2, 3),
                range("a.txt", 3, -1),
                view(&stage.path("a.txt")),
                view("."),
                range("a.txt", 0, 1),
                view("nowhere.txt"),
            ],
        )
        .await;
    let whole = "     1\t1\n     2\t2\n     3\t3\n     4\t4\n";
    assert_eq!(
        seen[..5],
        [
            whole,
            "     2\t2\n     3\t3\n",
            "     3\t3\n     4\t4\n",
            whole,
            "a.txt\nsrc/\nsrc/deep/\nsrc/main.rs\n",
        ]
        .map(Seen::ok)
    );
    for (seen, word) in seen[5..].iter().zip(["view_range", "nowhere.txt"]) {
        assert!(seen.is_error && seen.text.contains(word), "{seen:?}");
    }
    session.close().await;
}

#[tokio::test]
async fn p06_a_file_is_written_with_its_parents_and_a_passage_replaced_only_when_it_is_there_once()
{
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                create("a/b/c.txt", "one two two\n"),
                replace("a/b/c.txt", "one", "three"),
                replace("a/b/c.txt", "two", "four"),
                replace("a/b/c.txt", "five", "six"),
            ],
        )
        .await;
    let errors: Vec<bool> = seen.iter().map(|seen| seen.is_error).collect();
    assert_eq!(errors, [false, false, true, true], "{seen:?}");
    assert!(seen[2].text.contains("2 times"), "{seen:?}");
    assert!(seen[3].text.contains("0 times"), "{seen:?}");
    assert_eq!(
        stage.workspace.read("a/b/c.txt").unwrap(),
        "three two two\n"
    );
    // Without a new text the passage is removed.
    let input = json!({ "path": "a/b/c.txt", "old_str": "three ", "description": "" });
    stage.call(&session, "local_str_replace", input).await;
    assert_eq!(stage.workspace.read("a/b/c.txt").unwrap(), "two two\n");
    session.close().await;
}

#[tokio::test]
async fn a_passage_is_replaced_in_a_file_that_is_named_by_its_handle() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let steps = [
        create("a.txt", "one two\n"),
        replace("file-1", "one", "three"),
    ];
    let seen = stage.calls(&session, &steps).await;
    assert!(seen.iter().all(|seen| !seen.is_error), "{seen:?}");
    assert_eq!(stage.workspace.read("a.txt").unwrap(), "three two\n");
    session.close().await;
}

#[tokio::test]
async fn p06_a_path_outside_is_refused() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let outside = stage.workspace.root().join("outside.txt");
    fs::write(&outside, "secret").unwrap();
    let outside = outside.to_str().unwrap();
    let seen = stage
        .calls(
            &session,
            &[
                view(outside),
                view("../outside.txt"),
                view("/etc/passwd"),
                create(outside, "changed"),
                create("../new.txt", "new"),
                replace("../outside.txt", "secret", "changed"),
            ],
        )
        .await;
    assert!(seen.iter().all(|seen| seen.is_error), "{seen:?}");
    assert!(
        seen.iter().all(|seen| !seen.text.contains("secret")),
        "{seen:?}"
    );
    assert_eq!(fs::read_to_string(outside).unwrap(), "secret");
    assert!(!stage.workspace.root().join("new.txt").exists());
    session.close().await;
}

#[tokio::test]
async fn b09_a_link_that_leads_outside_is_refused() {
    let stage = Stage::new(&[LOCAL]).await;
    let outside = stage.workspace.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x.txt"), "secret").unwrap();
    symlink(
        outside.join("x.txt"),
        stage.workspace.work().join("file-link"),
    )
    .unwrap();
    symlink(&outside, stage.workspace.work().join("dir-link")).unwrap();
    let session = stage.session([local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                view("file-link"),
                view("dir-link"),
                view("dir-link/x.txt"),
                create("dir-link/new.txt", "new"),
                create("file-link", "changed"),
                replace("file-link", "secret", "changed"),
            ],
        )
        .await;
    assert!(seen.iter().all(|seen| seen.is_error), "{seen:?}");
    assert!(
        seen.iter().all(|seen| !seen.text.contains("secret")),
        "{seen:?}"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("x.txt")).unwrap(), "secret");
    session.close().await;
}

#[tokio::test]
async fn p16_an_artifact_has_sha256_size_and_media_type() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let text = "a,b\n1,2\n";
    stage
        .calls(&session, &[create("out/table.csv", text)])
        .await;
    let files = session.created_files();
    let [file] = files.as_slice() else {
        panic!("{files:?}")
    };
    let mut sha256 = String::new();
    for byte in Sha256::digest(text) {
        write!(sha256, "{byte:02x}").unwrap();
    }
    assert_eq!(file.sha256.as_deref(), Some(sha256.as_str()));
    assert_eq!(
        (
            file.name.as_str(),
            file.size,
            file.media_type.as_str(),
            file.source.as_str()
        ),
        ("table.csv", Some(8), "text/csv", "local")
    );
    let path = session.resolve(&file.id).await.unwrap();
    assert_eq!(path, stage.workspace.work().join("out/table.csv"));
    session.close().await;
}

#[tokio::test]
async fn b23_h12_a_name_or_an_id_from_outside_is_never_a_path() {
    let stage = Stage::with(&[], |builder| builder.skill(offers_files)).await;
    let outside = stage.workspace.root().join("outside.txt");
    fs::write(&outside, "secret").unwrap();
    stage.workspace.write("inside.txt", "fine").unwrap();
    symlink(&outside, stage.workspace.work().join("link.txt")).unwrap();
    let session = stage.session([BackendSpec::all_native()]).await;
    let offer = |name: &str, path: &str| {
        let command = json!({ "name": name, "path": path }).to_string();
        ("offers_execute", json!({ "command": command }))
    };
    let (inside, outside) = (stage.path("inside.txt"), outside.display().to_string());
    let seen = stage
        .calls(
            &session,
            &[
                offer("../../escaped.txt", &inside),
                offer("outside", &outside),
                offer("through-a-link", &stage.path("link.txt")),
                offer("up", &format!("{inside}/../../outside.txt")),
                offer("a-device", "/dev/zero"),
            ],
        )
        .await;
    for seen in &seen[1..] {
        assert!(
            seen.text.contains("refused") && seen.text.contains("`native`"),
            "{seen:?}"
        );
        assert!(!seen.text.contains("secret"), "{seen:?}");
    }
    let names: Vec<String> = session
        .created_files()
        .into_iter()
        .map(|file| file.name)
        .collect();
    assert_eq!(names, ["escaped.txt"]);
    for bad in [
        "file-99",
        "../outside.txt",
        "/etc/passwd",
        "",
        "escaped.txt/../../outside.txt",
    ] {
        let error = session.resolve(bad).await.unwrap_err();
        assert!(
            matches!(error, FileError::FileNotFound { .. }),
            "{bad}: {error}"
        );
    }
    session.close().await;
}

/// A skill that offers the file that its command describes.
fn offers_files() -> Skill {
    Skill::new("offers", "Offers files").execute("JSON", |_cx, request: Execute| {
        serde_json::from_str::<FileRef>(&request.command)
            .map(|file| ToolResult::text("There.").with_file(file))
    })
}

#[tokio::test]
async fn h12_a_remote_file_keeps_its_source_and_is_fetched_once_when_it_is_needed() {
    let fetched = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&fetched);
    let stage = Stage::with(&[], move |builder| {
        builder.link(move || {
            let counter = Arc::clone(&counter);
            ExecutorPlugin::new("far", "Keeps its files elsewhere", |_setup| {
                Ok(Far(counter))
            })
            .with_files()
        })
    })
    .await;
    let session = stage
        .session([BackendSpec::executor("far", [] as [&str; 0])])
        .await;
    stage
        .call(&session, "far_bash_tool", bash("make files"))
        .await;
    let files = session.created_files();
    let known: Vec<(&str, &str, bool)> = files
        .iter()
        .map(|file| {
            (
                file.name.as_str(),
                file.source.as_str(),
                file.path.is_some(),
            )
        })
        .collect();
    assert_eq!(
        known,
        [("report.txt", "far", false), ("passwd", "far", false)]
    );
    assert_eq!(fetched.load(Ordering::SeqCst), 0);
    let path = session.resolve(&files[0].id).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "content of report-1");
    assert_eq!(session.resolve("report.txt").await.unwrap(), path);
    assert_eq!(fetched.load(Ordering::SeqCst), 1, "fetched once");
    assert!(
        path.starts_with(stage.workspace.root().join("data")),
        "{}",
        path.display()
    );
    let error = session.resolve(&files[1].id).await.unwrap_err();
    assert!(
        matches!(&error, FileError::DownloadFailed { reason, .. } if reason.contains("410 gone")),
        "{error}"
    );
    session.close().await;
}

/// An executor whose files are elsewhere.
struct Far(Arc<AtomicUsize>);

impl Executor for Far {
    async fn bash(&self, _cx: Cx, _request: Bash) -> Result<BashOutput> {
        let files = vec![
            FileRef::lazy("report-1", "report.txt"),
            FileRef::lazy("../../gone", "../../etc/passwd"),
        ];
        Ok(BashOutput {
            exit_code: Some(0),
            files,
            ..BashOutput::default()
        })
    }

    async fn view(&self, _cx: Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("nothing to see"))
    }

    async fn create_file(&self, _cx: Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("read only"))
    }

    async fn str_replace(&self, _cx: Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("read only"))
    }
}

impl Files for Far {
    async fn put(&self, _cx: Cx, request: FilesPut) -> Result<FileRef> {
        Ok(request.file)
    }

    async fn get(&self, _cx: Cx, request: FilesGet) -> Result<FileRef> {
        if request.id != "report-1" {
            return Err(Error::new("410 gone"));
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        fs::write(&request.to, format!("content of {}", request.id))?;
        Ok(FileRef::at(request.to))
    }
}

#[tokio::test]
async fn b24_created_files_is_filled_for_every_backend() {
    let stage = Stage::with(&[LOCAL, FETCHER], |builder| {
        builder
            .link(|| {
                ExecutorPlugin::new("far", "Keeps its files elsewhere", |_setup| {
                    Ok(Far(Arc::default()))
                })
                .with_files()
            })
            .link(elsewhere)
    })
    .await;
    stage
        .workspace
        .write("app.log", "2026-01-02T03:04:05Z ERROR it broke\n")
        .unwrap();
    let session = stage
        .session([
            BackendSpec::all_native(),
            local(),
            BackendSpec::executor("far", [] as [&str; 0]),
            BackendSpec::executor(ELSEWHERE, [] as [&str; 0]),
        ])
        .await;
    // One after the other: what one backend does while another runs is the next case.
    for (tool, input) in [
        ("log-fetcher_execute", json!({ "command": "fetch app.log" })),
        ("local_bash_tool", bash("echo made > by-a-command.txt")),
        create("by-the-tool.txt", "made"),
        ("far_bash_tool", bash("make files")),
        ("elsewhere_make", json!({})),
    ] {
        let seen = stage.call(&session, tool, input).await;
        assert!(!seen.is_error, "{tool}: {seen:?}");
    }
    // The provider ran a tool itself, and the backend knows where its file is.
    let mut events = session.events_from_now();
    let reply = Message::new()
        .server_tool_use("srvtoolu_1", "code_execution", json!({ "code": "1" }))
        .raw_block(server_result("srvtoolu_1", "file_011"))
        .text("Done.");
    stage.model.says(reply);
    in_time(session.chat("Go on.")).await.unwrap();
    in_time(async { while !matches!(events.next().await.event, Event::File { .. }) {} }).await;
    let mut made: Vec<(String, String)> = session
        .created_files()
        .into_iter()
        .map(|file| (file.source, file.name))
        .collect();
    made.sort();
    let made: Vec<(&str, &str)> = made.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(
        made,
        [
            (ELSEWHERE, "by-the-backend.txt"),
            (ELSEWHERE, "file_011.txt"),
            (ELSEWHERE, "kept-there.txt"),
            ("far", "passwd"),
            ("far", "report.txt"),
            ("local", "by-a-command.txt"),
            ("local", "by-the-tool.txt"),
            ("native", "logs.jsonl"),
        ],
    );
    let path = session.resolve("file_011.txt").await.unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "content of file_011");
    session.close().await;
}

#[tokio::test]
async fn b24_the_model_is_told_of_a_file_once() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let seen = stage.bash(&session, "echo made > by-a-command.txt").await;
    assert!(seen.text.contains("by-a-command.txt"), "{seen:?}");
    assert_eq!(seen.text.matches("file-1").count(), 1, "{seen:?}");
    session.close().await;
}

#[tokio::test]
async fn b24_a_file_that_one_backend_made_while_another_ran_is_listed_once() {
    let stage = Stage::with(&[LOCAL], |builder| {
        builder.skill(makes_a_file_once_it_is_time)
    })
    .await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    // The command sees the directory before and after the skill has written into it.
    let waits = "echo > now; until test -s made.txt; do :; done; rm now";
    stage
        .calls(
            &session,
            &[
                ("makes_execute", json!({ "command": "" })),
                ("local_bash_tool", bash(waits)),
            ],
        )
        .await;
    let made: Vec<(String, String)> = session
        .created_files()
        .into_iter()
        .map(|file| (file.source, file.name))
        .collect();
    assert_eq!(made, [("native".to_owned(), "made.txt".to_owned())]);
    session.close().await;
}

/// A skill that makes a file as soon as there is one called `now`.
fn makes_a_file_once_it_is_time() -> Skill {
    Skill::new("makes", "Makes a file").execute("anything", |cx, _request: Execute| {
        let dir = cx.working_dir().ok_or("there is no working directory")?;
        while !dir.join("now").exists() {
            cx.check().map_err(|_| "cancelled")?;
            std::thread::yield_now();
        }
        let path = dir.join("made.txt");
        fs::write(&path, "made").map_err(|_| "it cannot be written")?;
        let file = FileRef::at(path.display().to_string());
        Ok::<_, &str>(ToolResult::text("made").with_file(file))
    })
}

#[tokio::test]
async fn b28_a_file_that_is_not_utf8_still_gives_valid_json() {
    let stage = Stage::new(&[LOCAL, MISBEHAVING]).await;
    fs::write(stage.workspace.work().join("latin1.txt"), b"caf\xe9\n").unwrap();
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                view("latin1.txt"),
                ("local_bash_tool", bash("cat latin1.txt")),
            ],
        )
        .await;
    assert_eq!(
        seen,
        ["     1\tcaf\u{fffd}\n", "caf\u{fffd}\n"].map(Seen::ok)
    );
    let request = stage.model.last_request();
    let body: Value = serde_json::from_slice(&request.raw_body).expect("UTF-8 and JSON");
    assert_eq!(body, request.body);
    session.close().await;
}
