//! The hybrid session: which backend runs a call, and how backends run beside each other.

use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use conjure_core::chat::Event;
use conjure_core::routing::{Alias, Naming};
use conjure_host::HostBuilder;
use conjure_host::session::{BackendSpec, SessionSpec};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, Execute, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Blocking, BlockingExecutor, Cx, Error, Result, Skill};
use serde_json::json;

use crate::native::echo;
use crate::stage::{CACHE, LOCAL, Seen, Stage, bash, in_time, local};

#[tokio::test]
async fn h02_names_with_both_signs_lead_to_their_own_skill() {
    let stage = Stage::with(&[], |builder| {
        builder
            .skill(|| echo("a", "b-c_d"))
            .skill(|| echo("a-b", "c_d"))
            .skill(|| echo("a_b", "c-d"))
    })
    .await;
    let session = stage.session([BackendSpec::all_native()]).await;
    let nothing = || json!({});
    let seen = stage
        .calls(
            &session,
            &[
                ("a_b-c_d", nothing()),
                ("a-b_c_d", nothing()),
                ("a_b_c-d", nothing()),
            ],
        )
        .await;
    assert_eq!(
        seen,
        ["b-c_d of a", "c_d of a-b", "c-d of a_b"].map(Seen::ok)
    );
    session.close().await;
}

#[tokio::test]
async fn h02_a_clash_fails_when_the_table_is_built_and_an_alias_resolves_it() {
    let stage = Stage::with(&[], |builder| {
        builder
            .skill(|| echo("a_b", "c"))
            .skill(|| echo("a", "b_c"))
    })
    .await;
    let spec = stage.spec([BackendSpec::all_native()]);
    let error = stage
        .host
        .session(spec.clone())
        .await
        .err()
        .expect("the names clash");
    assert!(error.to_string().contains("`a_b_c`"), "{error}");
    assert!(stage.model.requests().is_empty());
    let alias = Alias {
        backend: None,
        skill: Some("a".to_owned()),
        tool: Some("b_c".to_owned()),
        name: "other".to_owned(),
    };
    let routing = Naming {
        aliases: vec![alias],
        ..Naming::default()
    };
    let session = stage.open(SessionSpec { routing, ..spec }).await;
    let seen = stage
        .calls(&session, &[("a_b_c", json!({})), ("other", json!({}))])
        .await;
    assert_eq!(seen, ["c of a_b", "b_c of a"].map(Seen::ok));
    session.close().await;
}

#[tokio::test]
async fn h07_an_unknown_tool_is_an_error_result_and_the_others_run() {
    let stage = Stage::new(&[LOCAL, CACHE]).await;
    let session = stage.session([BackendSpec::all_native(), local()]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("cache-manager_execute", json!({ "command": "set k v" })),
                ("nobody_knows_it", json!({})),
                ("local_bash_tool", bash("echo ran")),
            ],
        )
        .await;
    assert_eq!(
        (&seen[0], &seen[2]),
        (&Seen::ok("stored"), &Seen::ok("ran\n"))
    );
    assert!(
        seen[1].is_error && seen[1].text.contains("nobody_knows_it"),
        "{seen:?}"
    );
    assert!(
        seen[1].text.contains("local_bash_tool"),
        "it says what there is: {seen:?}"
    );
    session.close().await;
}

#[tokio::test]
async fn h08_one_backend_times_out_and_the_results_of_the_others_stay() {
    let stage = Stage::new(&[LOCAL, CACHE]).await;
    let slow = BackendSpec {
        call_timeout_ms: Some(300),
        ..local()
    };
    let session = stage.session([BackendSpec::all_native(), slow]).await;
    let seen = stage
        .calls(
            &session,
            &[
                ("local_bash_tool", bash("sleep 300")),
                ("cache-manager_execute", json!({ "command": "set k v" })),
                ("local_bash_tool", bash("echo next")),
            ],
        )
        .await;
    assert!(
        seen[0].is_error && seen[0].text.contains("time limit of 0.3 s"),
        "{seen:?}"
    );
    assert_eq!(seen[1..], ["stored", "next\n"].map(Seen::ok));
    session.close().await;
}

#[tokio::test]
async fn h09_backends_overlap_and_one_backends_calls_run_in_order() {
    // Nobody passes the barrier alone: the calls end only if they run at the same time.
    let (skill, executor) = Meets::pair(Duration::ZERO);
    let order = Arc::clone(&skill.order);
    let stage = Stage::with(&[], |builder| meeting(builder, skill, executor)).await;
    let session = stage
        .session([
            BackendSpec::all_native(),
            BackendSpec::executor("other", [] as [&str; 0]),
        ])
        .await;
    let mut events = session.events_from_now();
    let command = |text: &str| json!({ "command": text });
    let seen = stage
        .calls(
            &session,
            &[
                ("meets_execute", command("1")),
                ("meets_execute", command("2")),
                ("other_bash_tool", bash("1")),
                ("other_bash_tool", bash("2")),
            ],
        )
        .await;
    assert_eq!(
        seen,
        ["skill 1", "skill 2", "executor 1", "executor 2"].map(Seen::ok)
    );
    let order = order.lock().unwrap().clone();
    for who in ["skill", "executor"] {
        let own: Vec<&String> = order.iter().filter(|line| line.starts_with(who)).collect();
        let [a, b, c, d] =
            [" 1 begins", " 1 ends", " 2 begins", " 2 ends"].map(|s| format!("{who}{s}"));
        assert_eq!(own, [&a, &b, &c, &d], "{order:?}");
    }
    let first_end = order
        .iter()
        .position(|line| line.ends_with("ends"))
        .unwrap();
    assert_eq!(first_end, 2, "both begin before either ends: {order:?}");
    // What subscribers see tells the same.
    let mut started = Vec::new();
    while let Some(event) = events.try_next() {
        match &event.event {
            Event::CallStarted { backend, .. } => started.push(backend.clone()),
            Event::FunctionCallOutput(_) => break,
            _ => {}
        }
    }
    started.sort();
    assert_eq!(started, ["native", "other"]);
    session.close().await;
}

#[tokio::test]
async fn h09_a_turn_takes_the_time_of_its_slowest_backend() {
    const EACH: Duration = Duration::from_millis(1500);
    let (skill, executor) = Meets::pair(EACH);
    let stage = Stage::with(&[], |builder| meeting(builder, skill, executor)).await;
    let session = stage
        .session([
            BackendSpec::all_native(),
            BackendSpec::executor("other", [] as [&str; 0]),
        ])
        .await;
    let begun = Instant::now();
    let seen = stage
        .calls(
            &session,
            &[
                ("meets_execute", json!({ "command": "1" })),
                ("other_bash_tool", bash("1")),
            ],
        )
        .await;
    let turn = begun.elapsed();
    assert_eq!(seen, ["skill 1", "executor 1"].map(Seen::ok));
    // Each call takes its time only when the other one has begun. What is left of the sum is for
    // a slow machine.
    assert!(turn >= EACH, "{turn:?}");
    assert!(turn < (EACH * 2).mul_f64(0.9), "{turn:?}");
    session.close().await;
}

/// A host with two backends that wait for each other.
fn meeting(builder: HostBuilder, skill: Meets, executor: Meets) -> HostBuilder {
    builder
        .skill(move || {
            let skill = skill.clone();
            Skill::new("meets", "Meets somebody")
                .execute("what", move |_cx, r: Execute| skill.meet(&r.command))
        })
        .executor("other", move |_setup| Ok(Blocking::new(executor.clone())))
}

/// Ends a call only when another one runs.
#[derive(Clone)]
struct Meets {
    who: &'static str,
    /// How long a call takes after that.
    takes: Duration,
    barrier: Arc<Barrier>,
    order: Arc<Mutex<Vec<String>>>,
}

impl Meets {
    fn pair(takes: Duration) -> (Self, Self) {
        let skill = Self {
            who: "skill",
            takes,
            barrier: Arc::new(Barrier::new(2)),
            order: Arc::default(),
        };
        let executor = Self {
            who: "executor",
            ..skill.clone()
        };
        (skill, executor)
    }

    fn meet(&self, what: &str) -> String {
        let note = |word: &str| {
            self.order
                .lock()
                .unwrap()
                .push(format!("{} {what} {word}", self.who));
        };
        note("begins");
        self.barrier.wait();
        std::thread::sleep(self.takes);
        note("ends");
        format!("{} {what}", self.who)
    }
}

impl BlockingExecutor for Meets {
    fn bash(&self, _cx: &Cx, request: Bash) -> Result<BashOutput> {
        let stdout = self.meet(&request.command);
        Ok(BashOutput {
            exit_code: Some(0),
            stdout,
            ..BashOutput::default()
        })
    }

    fn view(&self, _cx: &Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("there are no files"))
    }

    fn create_file(&self, _cx: &Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("there are no files"))
    }

    fn str_replace(&self, _cx: &Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("there are no files"))
    }
}

#[tokio::test]
async fn h10_one_skill_on_two_backends_is_an_error_without_an_alias_and_two_tools_with_it() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = stage
        .workspace
        .write_skill("twice", "twice", "Twice.", "Body")
        .unwrap();
    let skill = [dir.display().to_string()];
    let backends = [
        BackendSpec::local(skill.clone()),
        BackendSpec::local(skill).named("second"),
    ];
    let spec = stage.spec(backends);
    let error = stage
        .host
        .session(spec.clone())
        .await
        .err()
        .expect("the names clash");
    for word in ["`twice_bash_tool`", "local", "second", "alias", "prefer"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    let alias = Alias {
        backend: Some("second".to_owned()),
        skill: Some("twice".to_owned()),
        tool: None,
        name: "again".to_owned(),
    };
    let routing = Naming {
        aliases: vec![alias],
        ..Naming::default()
    };
    let session = stage
        .open(SessionSpec {
            routing,
            ..spec.clone()
        })
        .await;
    let seen = stage
        .calls(
            &session,
            &[
                ("twice_bash_tool", bash("echo 1")),
                ("again_bash_tool", bash("echo 2")),
            ],
        )
        .await;
    assert_eq!(seen, ["1\n", "2\n"].map(Seen::ok));
    session.close().await;
    let routing = Naming {
        prefer: vec!["second".to_owned()],
        ..Naming::default()
    };
    let session = stage.open(SessionSpec { routing, ..spec }).await;
    let table = session.table();
    let route = table.route("twice_bash_tool").unwrap();
    assert_eq!(&*route.backend, "second");
    session.close().await;
}

#[tokio::test]
async fn h11_a_docker_skill_never_runs_on_the_host() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = stage
        .workspace
        .write_skill("boxed", "boxed", "Boxed.", "Body")
        .unwrap();
    let docker = || BackendSpec::docker([dir.display().to_string()]);
    // Without such a plugin there is no session, whatever else is loaded.
    let spec = stage.spec([docker(), local()]);
    let error = stage
        .host
        .session(spec)
        .await
        .err()
        .expect("there is no such plugin");
    assert!(error.to_string().contains("`docker`"), "{error}");
    assert!(stage.model.requests().is_empty());
}

#[tokio::test]
async fn h11_the_executor_called_docker_gets_every_call_of_a_docker_skill() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let order = Arc::clone(&seen);
    let stage = Stage::with(&[LOCAL], move |builder| {
        builder.executor("docker", move |_setup| {
            let meets = Meets {
                who: "docker",
                takes: Duration::ZERO,
                barrier: Arc::new(Barrier::new(1)),
                order: Arc::clone(&order),
            };
            Ok(Blocking::new(meets))
        })
    })
    .await;
    let dir = stage
        .workspace
        .write_skill("boxed", "boxed", "Boxed.", "Body")
        .unwrap();
    let session = stage
        .session([BackendSpec::docker([dir.display().to_string()]), local()])
        .await;
    let touch = format!("touch {}", stage.path("made-by-a-shell"));
    assert_eq!(
        stage.call(&session, "boxed_bash_tool", bash(&touch)).await,
        Seen::ok(&format!("docker {touch}"))
    );
    let view = stage
        .call(&session, "boxed_view", json!({ "path": "SKILL.md" }))
        .await;
    assert!(
        view.is_error && view.text.contains("there are no files"),
        "{view:?}"
    );
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert_eq!(
        stage.workspace.files().unwrap(),
        [std::path::Path::new("boxed/SKILL.md")]
    );
    in_time(session.close()).await;
}
