//! Sessions that grant a plugin less than its manifest asks for.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_core::chat::{FunctionCall, OutputPart};
use conjure_host::Host;
use conjure_host::plugin::{InstanceDirs, InstanceGrant, Isolation, NoServices, WorkerOptions};
use conjure_host::session::{
    BackendSpec, PermissionsSpec, PluginSpec, SessionError, SessionSpec, ToolSession,
    WorkingDirAccess,
};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::{Bench, Plugin};
use conjure_skill_sdk::protocol::Permissions;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::confined::bench;
use crate::granted_host_ops::{answer, said};

const PROBER: &str = include_str!("prober/lib.rs");

/// A skill that has the host send a file of its session, and says what came of it.
const SENDER: &str = r#"
use conjure_skill_sdk::protocol::{Execute, FileRef, HttpRequest, Permissions};
use conjure_skill_sdk::{Skill, export_skill};

fn skill() -> Skill {
    let http = vec!["127.0.0.1".to_owned()];
    let asks = Permissions { http, ..Permissions::default() };
    Skill::new("sender", "Sends files").permissions(asks).execute("URL work | URL exchange", |cx, c: Execute| {
        let (url, place) = c.command.split_once(' ').unwrap();
        let path = match place {
            "work" => cx.working_dir().unwrap().join("kept"),
            _ => {
                let path = cx.exchange_dir().unwrap().join("made");
                std::fs::write(&path, "b").unwrap();
                path
            }
        };
        let request = HttpRequest {
            method: "POST".to_owned(),
            url: url.to_owned(),
            body_file: Some(FileRef::at(path.display().to_string())),
            ..HttpRequest::default()
        };
        cx.http(&request).map(|reply| reply.status.to_string())
    })
}

export_skill!(skill);
"#;

/// A directory that the manifest names and no worker has otherwise.
const NAMED_DIR: &str = "/var/log";

/// The prober, whose state all sessions share, and which asks for connections, programs and a directory.
fn library() -> PathBuf {
    let asks = format!(
        ".shared().permissions(conjure_skill_sdk::protocol::Permissions {{ \
         read: vec![\"{NAMED_DIR}\".into()], network: true, commands: true, ..Default::default() }})\
         \n}}\n\nfn attempt("
    );
    let source = PROBER.replace("\n}\n\nfn attempt(", &asks);
    Plugin::new("prober-to-narrow", &source).build()
}

/// An attempt at each of its permissions.
fn attempts(listener: &TcpListener) -> [String; 3] {
    [
        format!("list {NAMED_DIR}"),
        format!("tcp {}", listener.local_addr().unwrap()),
        "run /bin/true".to_owned(),
    ]
}

fn is_refused(outcome: &str) -> bool {
    ["error 1", "error 13"].contains(&outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reaches_of_its_manifest_what_its_session_grants() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let work = tempfile::tempdir().unwrap();
    let bench = bench(true);
    let plugin = bench.load(&library());
    let instance = async |permissions: Option<Permissions>| {
        let grant = InstanceGrant {
            dirs: InstanceDirs::of_work(&[work.path()]),
            permissions,
            withholds_working_dir: false,
        };
        plugin
            .create_granted(&Bench::create(), Arc::new(NoServices), &grant)
            .await
            .unwrap()
    };
    let nothing = Permissions::default();
    let grants = [
        (None, [true; 3]),
        (Some(nothing.clone()), [false; 3]),
        (
            Some(Permissions {
                read: vec![NAMED_DIR.to_owned()],
                // Nobody asked for it.
                write: vec![NAMED_DIR.to_owned()],
                ..nothing.clone()
            }),
            [true, false, false],
        ),
        (
            Some(Permissions {
                network: true,
                ..nothing.clone()
            }),
            [false, true, false],
        ),
        (
            Some(Permissions {
                commands: true,
                ..nothing
            }),
            [false, false, true],
        ),
    ];
    // All of them at the same time: none has what another has.
    let mut instances = Vec::new();
    for (granted, expected) in grants {
        instances.push((instance(granted.clone()).await, granted, expected));
    }
    for (instance, granted, expected) in &instances {
        for (attempt, works) in attempts(&listener).iter().zip(expected) {
            let outcome = Bench::execute(instance, attempt).await.unwrap();
            let is_right = match works {
                true => outcome == "done",
                false => is_refused(&outcome),
            };
            assert!(is_right, "{granted:?}: `{attempt}`: {outcome}");
        }
        let write = format!("write {NAMED_DIR}/conjure-test");
        assert!(is_refused(&Bench::execute(instance, &write).await.unwrap()));
    }
}

async fn host(dir: &Path, isolation: Isolation) -> Host {
    let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    workers.isolation = isolation;
    let host = Host::builder()
        .data_dir(dir.join("data"))
        .workers(workers)
        .plugin_file(library());
    host.build().await.unwrap()
}

/// A session that grants the plugin of this name these permissions.
fn spec(plugin: &str, permissions: Option<PermissionsSpec>) -> SessionSpec {
    SessionSpec {
        plugins: [(
            plugin.to_owned(),
            PluginSpec {
                permissions,
                ..PluginSpec::default()
            },
        )]
        .into(),
        ..SessionSpec::hybrid([BackendSpec::all_native()])
    }
}

async fn outcome(session: &ToolSession, attempt: &str) -> String {
    let call = FunctionCall {
        call_id: "call-1".to_owned(),
        name: "prober_execute".to_owned(),
        arguments: json!({ "command": attempt }),
        arguments_text: None,
    };
    let called = session.call(&call, &CancellationToken::new()).await;
    let output = called.unwrap().output;
    let texts = output.output.iter().filter_map(|part| match part {
        OutputPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_grants_a_shared_skill_less_has_a_worker_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = host(dir.path(), Isolation::Process).await;
    let network_only = PermissionsSpec {
        network: true,
        ..PermissionsSpec::default()
    };
    let all = host.calls(spec("prober", None)).await.unwrap();
    let less = host
        .calls(spec("prober", Some(network_only)))
        .await
        .unwrap();
    for (session, expected) in [
        (&all, [true; 3]),
        (&less, [false, true, false]),
        (&all, [true; 3]),
    ] {
        for (attempt, works) in attempts(&listener).iter().zip(expected) {
            let outcome = outcome(session, attempt).await;
            let is_right = match works {
                true => outcome == "done",
                false => is_refused(&outcome),
            };
            assert!(is_right, "`{attempt}`: {outcome}");
        }
    }
}

async fn refusal(host: &Host, plugin: &str, permissions: PermissionsSpec) -> String {
    match host.calls(spec(plugin, Some(permissions))).await {
        Err(SessionError::Spec(error)) => error.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it is granted"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_granted_or_kept_is_said_before_the_session_opens() {
    let dir = tempfile::tempdir().unwrap();
    let confined = host(dir.path(), Isolation::Process).await;
    let too_much = PermissionsSpec {
        write: vec![NAMED_DIR.to_owned()],
        sample: true,
        network: true,
        ..PermissionsSpec::default()
    };
    let said = refusal(&confined, "prober", too_much).await;
    for part in [
        "`plugins.prober.permissions`",
        "changing /var/log, questions to the session's model",
        "does not ask for",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("connections"), "{said}");
    let said = refusal(&confined, "probe", PermissionsSpec::default()).await;
    assert!(said.contains("no plugin is called `probe`"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let in_process = host(dir.path(), Isolation::InProcess).await;
    let less = PermissionsSpec {
        read: vec![NAMED_DIR.to_owned()],
        network: true,
        ..PermissionsSpec::default()
    };
    let said = refusal(&in_process, "prober", less.clone()).await;
    assert!(said.contains("programs that it starts"), "{said}");
    assert!(said.contains("nothing would keep it"), "{said}");
    // What nothing is taken from needs nobody who keeps it.
    let all = PermissionsSpec {
        commands: true,
        ..less
    };
    let session = in_process.calls(spec("prober", Some(all))).await.unwrap();
    assert_eq!(outcome(&session, "run /bin/true").await, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_may_keep_its_working_directory_from_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let kept = work.join("kept");
    std::fs::write(&kept, "a").unwrap();
    let (read, write) = (
        format!("read {}", kept.display()),
        format!("write {}", work.join("made").display()),
    );
    let library = Plugin::new("prober", PROBER).build();
    let host = async |isolation| {
        let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
        workers.isolation = isolation;
        let host = Host::builder()
            .data_dir(dir.path().join("data"))
            .workers(workers)
            .plugin_file(library.clone());
        host.build().await.unwrap()
    };
    let spec = |working_dir| SessionSpec {
        working_dir: Some(work.clone()),
        plugins: [(
            "prober".to_owned(),
            PluginSpec {
                working_dir,
                ..PluginSpec::default()
            },
        )]
        .into(),
        ..SessionSpec::hybrid([BackendSpec::all_native()])
    };
    let confined = host(Isolation::Process).await;
    let (none, reads) = (Some(WorkingDirAccess::None), Some(WorkingDirAccess::Read));
    // All of them at the same time: none has what another has.
    let mut sessions = Vec::new();
    for (granted, works) in [
        (None, [true, true]),
        (none, [false, false]),
        (reads, [true, false]),
    ] {
        let session = confined.calls(spec(granted)).await.unwrap();
        sessions.push((session, granted, works));
    }
    for (session, granted, works) in &sessions {
        for (attempt, works) in [&read, &write].into_iter().zip(works) {
            let outcome = outcome(session, attempt).await;
            let is_right = match works {
                true => outcome == "done",
                false => is_refused(&outcome),
            };
            assert!(is_right, "{granted:?}: `{attempt}`: {outcome}");
        }
    }
    let inside = host(Isolation::InProcess).await;
    let refused = inside.calls(spec(none)).await.unwrap_err().to_string();
    assert!(
        refused.contains("`plugins.prober.working_dir`"),
        "{refused}"
    );
    assert!(
        refused.contains("nothing would keep it from that"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_hands_a_plugin_nothing_of_a_directory_that_is_kept_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("kept"), "a").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    let host = Host::builder()
        .data_dir(dir.path().join("data"))
        .workers(workers)
        .plugin_file(Plugin::new("sender", SENDER).build());
    let host = host.build().await.unwrap();
    let (none, reads) = (Some(WorkingDirAccess::None), Some(WorkingDirAccess::Read));
    // Three requests arrive: the one that is refused is never sent.
    let server = std::thread::spawn(move || answer(&listener, 3));
    for (working_dir, works) in [(none, false), (reads, true)] {
        let spec = SessionSpec {
            working_dir: Some(work.clone()),
            plugins: [(
                "sender".to_owned(),
                PluginSpec {
                    working_dir,
                    ..PluginSpec::default()
                },
            )]
            .into(),
            ..SessionSpec::hybrid([BackendSpec::all_native()])
        };
        let session = host.calls(spec).await.unwrap();
        let exchanged = said(&session, "sender_execute", &format!("{url} exchange")).await;
        assert_eq!(exchanged, "200", "{working_dir:?}");
        let kept = said(&session, "sender_execute", &format!("{url} work")).await;
        match works {
            true => assert_eq!(kept, "200"),
            false => assert!(kept.contains("withholds from this plugin"), "{kept}"),
        }
        session.close().await;
    }
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_is_made_that_nothing_keeps_from_the_directory() {
    let bench = Bench::new();
    let plugin = bench.load(&Plugin::new("prober", PROBER).build());
    let grant = InstanceGrant {
        withholds_working_dir: true,
        ..InstanceGrant::default()
    };
    let create = Bench::create();
    let made = plugin.create_granted(&create, Arc::new(NoServices), &grant);
    let refused = made.await.err().unwrap().to_string();
    assert!(refused.contains("the working directory"), "{refused}");
}
