//! Processes: what a call started is gone when the call is, and nothing outlives its session.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conjure_core::chat::Event;
use conjure_host::session::BackendSpec;
use conjure_kit::{Model, ProgramHandle, Signal};
use conjure_mock_llm::{Message, Position, Reply};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Executor, Result};

use crate::stage::{LOCAL, Stage, bash, in_time, local, workspace};

/// Starts a family in the background and writes the number of each into a file: the shell, a child,
/// one that left its process group and session, and one whose parent is gone.
const FAMILY: &str = "\
    echo $$ > shell.pid
    sleep 301 & echo $! > child.pid
    setsid sh -c 'echo $$ > far.pid; sleep 302 & echo $! > grandchild.pid; wait' &
    (setsid sleep 303 & echo $! > orphan.pid)
    until test -s far.pid && test -s grandchild.pid; do :; done
    printf 'family is %s\n' there";

const MEMBERS: [&str; 5] = [
    "shell.pid",
    "child.pid",
    "far.pid",
    "grandchild.pid",
    "orphan.pid",
];

/// Whether a process runs; one that has ended and waits to be fetched does not.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(None | Some('Z' | 'X')))
}

fn pid(dir: &Path, name: &str) -> u32 {
    let path = dir.join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.trim().parse().unwrap()
}

fn family(dir: &Path) -> Vec<u32> {
    MEMBERS.map(|name| pid(dir, name)).into()
}

fn alive(pids: &[u32]) -> Vec<u32> {
    pids.iter().copied().filter(|pid| runs(*pid)).collect()
}

/// Waits until processes are gone.
pub(crate) fn gone(pids: &[u32]) {
    let until = Instant::now() + Duration::from_secs(20);
    let mut left = alive(pids);
    while !left.is_empty() && Instant::now() < until {
        std::thread::yield_now();
        left = alive(&left);
    }
    end(&left);
    assert_eq!(left, [0_u32; 0], "still there");
}

#[tokio::test]
async fn b04_a_time_out_ends_the_whole_process_tree() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage
        .session([BackendSpec {
            call_timeout_ms: Some(2_000),
            ..local()
        }])
        .await;
    let seen = stage
        .bash(&session, &format!("{FAMILY}; exec sleep 304"))
        .await;
    let told = "[The call of `local_bash_tool` on backend `local` was ended by its time limit of 2 s, \
                with everything that it had started.";
    assert!(
        seen.is_error && seen.text.starts_with("family is there\n") && seen.text.contains(told),
        "{seen:?}"
    );
    assert_eq!(alive(&family(&stage.workspace.work())), [0_u32; 0]);
    session.close().await;
}

#[tokio::test]
async fn b04_a_command_that_ends_leaves_nothing_behind() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = stage.session([local()]).await;
    let seen = stage.bash(&session, FAMILY).await;
    assert!(
        !seen.is_error && seen.text.starts_with("family is there\n"),
        "{seen:?}"
    );
    assert_eq!(alive(&family(&stage.workspace.work())), [0_u32; 0]);
    session.close().await;
}

#[tokio::test]
async fn b04_a_cancelled_turn_ends_its_processes_and_can_go_on() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = Arc::new(stage.session([local()]).await);
    stage.model.calls(
        "toolu_1",
        "local_bash_tool",
        bash(&format!("{FAMILY}; exec sleep 304")),
    );
    let mut events = session.events_from_now();
    let chatting = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.chat("Go on.").await }
    });
    until_output(&mut events, "family is there").await;
    session.cancel(true).await;
    let error = in_time(chatting).await.unwrap().unwrap_err();
    assert_eq!(error, conjure_host::session::ChatError::Cancelled);
    assert_eq!(alive(&family(&stage.workspace.work())), [0_u32; 0]);
    stage.model.says(Message::new().text("Stopped."));
    assert_eq!(
        in_time(session.chat("Why?")).await.unwrap().text,
        "Stopped."
    );
    assert_eq!(stage.model.requests().len(), 2);
    Arc::into_inner(session).unwrap().close().await;
}

/// Waits until a call has written something.
async fn until_output(events: &mut conjure_host::session::Subscription, text: &str) {
    in_time(async {
        loop {
            if let Event::ToolOutput { chunk, .. } = &events.next().await.event
                && chunk.contains(text)
            {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn h15_closing_a_session_ends_its_processes_and_its_exchange_directory() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = Arc::new(stage.session([local()]).await);
    let exchange = stage
        .workspace
        .root()
        .join("data/sessions")
        .join(session.thread().as_str())
        .join("exchange");
    assert!(exchange.is_dir());
    stage.model.calls(
        "toolu_1",
        "local_bash_tool",
        bash(&format!("{FAMILY}; exec sleep 304")),
    );
    let mut events = session.events_from_now();
    let chatting = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.chat("Go on.").await.map(drop) }
    });
    until_output(&mut events, "family is there").await;
    // Whoever waits holds the session too: it is given up first.
    chatting.abort();
    let _aborted = chatting.await;
    in_time(Arc::into_inner(session).unwrap().close()).await;
    assert_eq!(alive(&family(&stage.workspace.work())), [0_u32; 0]);
    assert!(!exchange.exists());
}

#[tokio::test]
async fn h15_dropping_a_session_ends_its_processes_too() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = Arc::new(stage.session([local()]).await);
    stage.model.calls(
        "toolu_1",
        "local_bash_tool",
        bash(&format!("{FAMILY}; exec sleep 304")),
    );
    let mut events = session.events_from_now();
    let chatting = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.chat("Go on.").await.map(drop) }
    });
    until_output(&mut events, "family is there").await;
    chatting.abort();
    let _aborted = chatting.await;
    drop(session);
    let pids = family(&stage.workspace.work());
    in_time(tokio::task::spawn_blocking(move || gone(&pids)))
        .await
        .unwrap();
}

#[tokio::test]
async fn h15_every_session_is_cleaned_up_on_its_executor_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recording = Arc::clone(&seen);
    let stage = Stage::with(&[], move |builder| {
        builder.executor("tidy", move |_setup| Ok(Tidy(Arc::clone(&recording))))
    })
    .await;
    let open = || stage.session([BackendSpec::executor("tidy", [] as [&str; 0])]);
    let (one, two) = (open().await, open().await);
    let ids = [one.thread().to_string(), two.thread().to_string()];
    one.close().await;
    two.close().await;
    let expected: Vec<String> = [("init", 0), ("init", 1), ("cleanup", 0), ("cleanup", 1)]
        .map(|(what, which)| format!("{what} {}", ids[which]))
        .into();
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// An executor that notes when sessions begin and end.
struct Tidy(Arc<Mutex<Vec<String>>>);

impl Tidy {
    fn note(&self, what: &str, cx: &Cx) {
        let session = cx.session().unwrap_or("nobody");
        self.0.lock().unwrap().push(format!("{what} {session}"));
    }
}

impl Executor for Tidy {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        self.note("init", &cx);
        Ok(ExecutorReady {
            working_dir: "/w".to_owned(),
            skills: request.skills,
        })
    }

    async fn bash(&self, _cx: Cx, _request: Bash) -> Result<BashOutput> {
        Err(Error::new("nothing is run"))
    }

    async fn view(&self, _cx: Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("there are no files"))
    }

    async fn create_file(&self, _cx: Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("there are no files"))
    }

    async fn str_replace(&self, _cx: Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("there are no files"))
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        self.note("cleanup", &cx);
        Ok(())
    }
}

/// `conjure run` in the middle of a command that has started a family.
pub(crate) fn run_with_family(model: &Model) -> (ProgramHandle, PathBuf) {
    let workspace = workspace(&[LOCAL]);
    let dir = workspace.work();
    model.calls(
        "toolu_1",
        "local_bash_tool",
        bash(&format!("{FAMILY}; exec sleep 304")),
    );
    let running = conjure_kit::cli([
        "run",
        "--json",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "Go on.",
    ])
    .workspace(&workspace)
    .model(model)
    .start()
    .unwrap();
    running.wait_for_stdout("family is there").unwrap();
    (running, dir)
}

#[test]
fn h15_an_interrupted_host_ends_its_processes() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let model = Model::start().unwrap();
        let (running, dir) = run_with_family(&model);
        running.signal(signal);
        let output = running.wait().unwrap();
        gone(&family(&dir));
        if signal == Signal::INT {
            assert_eq!(output.code, Some(130), "{output:?}");
        }
    }
}

#[test]
fn h15_a_killed_host_leaves_nothing_behind() {
    let model = Model::start().unwrap();
    let (running, dir) = run_with_family(&model);
    running.signal(Signal::KILL);
    let workspace = running.workspace().clone();
    let killed = running.wait().unwrap();
    assert_eq!(killed.signal, Some(9));
    gone(&family(&dir));
    // It could not remove what it had on the disk: the next one that uses the directory does.
    let sessions = workspace.home().join(".local/share/conjure/sessions");
    assert_eq!(exchanges(&sessions).len(), 1, "{sessions:?}");
    model.says(Message::new().text("Hello."));
    let later = conjure_kit::cli(["run", "--provider", "anthropic", "--model", "m", "Hi."])
        .workspace(&workspace)
        .model(&model)
        .run()
        .unwrap();
    assert_eq!(later.code, Some(0), "{later:?}");
    assert_eq!(exchanges(&sessions), [] as [PathBuf; 0]);
}

/// The exchange directories of the sessions in a data directory.
fn exchanges(sessions: &Path) -> Vec<PathBuf> {
    fs::read_dir(sessions)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("exchange"))
        .filter(|exchange| exchange.exists())
        .collect()
}

/// Ends processes that a test found left over, so that it leaves none itself.
pub(crate) fn end(pids: &[u32]) {
    for pid in pids {
        if let Some(pid) = i32::try_from(*pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// The members of the family that run, for tests elsewhere.
pub(crate) fn family_left(dir: &Path) -> Vec<u32> {
    alive(&family(dir))
}

#[tokio::test]
async fn a_session_that_ends_while_the_model_speaks_lets_go_of_the_connection() {
    let stage = Stage::new(&[]).await;
    let session = Arc::new(stage.session([]).await);
    stage
        .model
        .says(Reply::text("A long story").hold(Position::Event(3), "middle"));
    let chatting = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.chat("Tell me.").await.map(drop) }
    });
    stage.model.mock().wait_for_gate("middle").await.unwrap();
    chatting.abort();
    let _aborted = chatting.await;
    in_time(Arc::into_inner(session).unwrap().close()).await;
    let outcome = stage.model.mock().wait_for_outcome(0).await.unwrap();
    assert_eq!(outcome, conjure_mock_llm::Outcome::ClientGone);
}

#[tokio::test]
async fn h15_a_session_that_could_not_open_leaves_nothing() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recording = Arc::clone(&seen);
    let stage = Stage::with(&[], move |builder| {
        builder.executor("tidy", move |_setup| Ok(Tidy(Arc::clone(&recording))))
    })
    .await;
    let spec = stage.spec([
        BackendSpec::executor("tidy", [] as [&str; 0]),
        BackendSpec::executor("nobody", [] as [&str; 0]),
    ]);
    assert!(stage.host.session(spec).await.is_err());
    let seen = seen.lock().unwrap().clone();
    let words: Vec<&str> = seen
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(words, ["init", "cleanup"]);
    let sessions = stage.workspace.root().join("data/sessions");
    assert_eq!(exchanges(&sessions), [] as [PathBuf; 0]);
}
