//! A program on the SDK for Python: its calls, its ends, and what it reaches.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conjure_abi::{EmitKind, Fault, LogLevel, code};
use conjure_host::plugin::{
    AfterStop, CallMeta, CallOptions, HostServices, Instance, InstanceDirs, Isolation, NoServices,
    PluginCallFailure, PluginError, PluginId, emit_channel,
};
use conjure_plugin_tests::{Bench, envelope};
use conjure_skill_sdk::protocol::Create;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::calls::{execute, until};
use super::{bench, load_odd};

async fn request(instance: &Instance, op: &str, body: Value) -> Value {
    let reply = instance
        .request(op, envelope(&body), CallOptions::default())
        .await;
    serde_json::from_slice(&reply.unwrap()).unwrap()
}

fn text(reply: &Value) -> &str {
    reply["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_called_as_a_library_is() {
    let bench = bench();
    let plugin = load_odd(&bench);
    assert_eq!(plugin.id().to_string(), "odd 1.0.0");
    // The host's own setting is in-process; a program never is.
    assert_eq!(plugin.isolation(), Isolation::Process);
    let (one, two) = (bench.instance(&plugin).await, bench.instance(&plugin).await);
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "1");
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "2");
    assert_eq!(Bench::execute(&two, "count").await.unwrap(), "1");
    let failed = request(
        &one,
        "skill.execute",
        json!({ "command": "fail for a reason" }),
    )
    .await;
    assert_eq!(
        (text(&failed), &failed["is_error"]),
        ("for a reason", &json!(true))
    );
    let large = Bench::execute(&one, "large 1000000").await.unwrap();
    assert_eq!(large.len(), 1_000_000);
    one.close(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_what_the_annotations_say() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let typed = plugin
        .manifest()
        .tools
        .iter()
        .find(|tool| tool.name == "typed");
    assert_eq!(
        typed.unwrap().input_schema,
        json!({
            "type": "object",
            "properties": {
                "points": {
                    "type": "array",
                    "description": "Some points",
                    "items": {
                        "type": "object",
                        "properties": { "x": { "type": "number" }, "y": { "type": "number" } },
                        "required": ["x"],
                    },
                },
                "color": { "type": "string", "enum": ["red", "blue"], "default": "red" },
                "scale": { "type": ["number", "null"] },
            },
            "required": ["points"],
        })
    );
    let instance = bench.instance(&plugin).await;
    let call = async |body| request(&instance, "skill.tool.typed", body).await;
    let fits = call(json!({ "points": [{ "x": 1 }, { "x": 2.5, "y": 1 }], "scale": 2 })).await;
    assert_eq!(
        fits["structured"],
        json!({ "x": 7.0, "y": 1.0, "color": "red" })
    );
    for (body, expected) in [
        (json!({}), "`points` is missing"),
        (Value::Null, "`points` is missing"),
        (json!({ "points": 1 }), "`points` must be a list"),
        (
            json!({ "points": [{ "x": "1" }] }),
            "`points.0.x` must be of type number",
        ),
        (json!({ "points": [{}] }), "`points.0.x` is missing"),
        (
            json!({ "points": [], "color": "green" }),
            "`color` must be one of",
        ),
        (json!([]), "must be an object"),
    ] {
        let misfit = call(body).await;
        assert_eq!(misfit["is_error"], true);
        assert!(text(&misfit).contains(expected), "{misfit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_author_prints_is_no_part_of_the_protocol() {
    let bench = bench();
    let instance = bench.instance(&load_odd(&bench)).await;
    for _ in 0..3 {
        assert_eq!(Bench::execute(&instance, "print").await.unwrap(), "printed");
    }
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_in_order_and_waits_for_credit() {
    let bench = bench();
    let instance = bench.instance(&load_odd(&bench)).await;
    let (sink, mut stream) = emit_channel();
    let options = CallOptions {
        sink: Some(sink),
        ..CallOptions::default()
    };
    // More pieces than there is credit and room for at once.
    let calling = tokio::spawn({
        let instance = Arc::clone(&instance);
        async move { execute(&instance, "output 1000", options).await }
    });
    let (mut out, mut errors, mut events) = (String::new(), String::new(), Vec::new());
    while let Some(piece) = stream.next().await {
        let text = || std::str::from_utf8(&piece.bytes).unwrap();
        match piece.kind {
            EmitKind::Stdout => out.push_str(text()),
            EmitKind::Stderr => errors.push_str(text()),
            EmitKind::Event => events.push(serde_json::from_str::<Value>(text()).unwrap()),
        }
    }
    assert_eq!(calling.await.unwrap().unwrap(), "said");
    let expected: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!((out, errors.as_str()), (expected, "and errors"));
    let progress = json!({ "event": "progress", "done": 1, "total": 2, "message": "half" });
    assert_eq!(events, [progress]);
}

/// Answers host operations, and keeps lines of the log.
#[derive(Default)]
struct Services {
    asked: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
}

impl HostServices for Services {
    fn host(
        &self,
        _plugin: &PluginId,
        _call: &CallMeta,
        op: &str,
        json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
        let asked = format!("{op} {}", String::from_utf8(json).unwrap());
        let reply = match op {
            "kv.get" => json!({ "value": [1, 2] }),
            "kv.set" => json!({}),
            "secret.get" => json!({ "value": "s3cret" }),
            "http.send" => json!({ "status": 200, "headers": [["a", "b"]], "body": "[true]" }),
            "roots" => json!({ "roots": [{ "uri": "file:///work" }] }),
            other => panic!("not asked for: {other}"),
        };
        self.asked.lock().unwrap().push(asked);
        async move { Ok(serde_json::to_vec(&reply).unwrap()) }.boxed()
    }

    fn log(
        &self,
        _plugin: &PluginId,
        _call: &CallMeta,
        _level: LogLevel,
        _target: &str,
        line: &str,
    ) {
        self.log.lock().unwrap().push(line.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_asks_the_host() {
    let bench = bench();
    let services = Arc::new(Services::default());
    let instance = load_odd(&bench)
        .create(&Bench::create(), Arc::clone(&services) as _)
        .await
        .unwrap();
    let reply = request(&instance, "skill.execute", json!({ "command": "host" })).await;
    assert_eq!(
        reply["structured"],
        json!({
            "kept": [[1, 2], null], "secret": "s3cret", "http": [true], "roots": ["file:///work"],
        })
    );
    assert_eq!(
        *services.asked.lock().unwrap(),
        [
            "kv.get {\"key\":\"a\"}",
            "kv.set {\"key\":\"a\",\"value\":1}",
            "secret.get {\"name\":\"TOKEN\"}",
            "http.send {\"method\":\"GET\",\"url\":\"https://api.example.org/x\",\"headers\":[]}",
            "roots {}",
        ]
    );
    // Several at the same time, from threads of the plugin's own.
    assert_eq!(Bench::execute(&instance, "hosts 20").await.unwrap(), "20");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_cleans_up_and_the_program_goes_on() {
    let bench = bench();
    let services = Arc::new(Services::default());
    let instance = load_odd(&bench)
        .create(&Bench::create(), Arc::clone(&services) as _)
        .await
        .unwrap();
    let before = Bench::execute(&instance, "pid").await.unwrap();
    let failure = cancelled(&instance, "wait").await;
    assert!(
        matches!(
            failure,
            PluginCallFailure::Cancelled {
                after: AfterStop::Stopped,
                ..
            }
        ),
        "{failure:?}"
    );
    until(|| {
        services
            .log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line == "cleaned up")
    })
    .await;
    assert_eq!(Bench::execute(&instance, "pid").await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_stop_costs_its_process_and_no_other() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let (one, other) = (bench.instance(&plugin).await, bench.instance(&plugin).await);
    let before = Bench::execute(&one, "pid").await.unwrap();
    let untouched = Bench::execute(&other, "pid").await.unwrap();
    cancelled(&one, "ignore").await;
    let after = Bench::execute(&one, "pid").await.unwrap();
    assert_ne!(after, before);
    until(|| !std::path::Path::new(&format!("/proc/{before}/fd/0")).exists()).await;
    assert_eq!(Bench::execute(&other, "pid").await.unwrap(), untouched);
}

/// Begins a call, cancels it when it has said something, and gives how it failed.
async fn cancelled(instance: &Arc<Instance>, command: &str) -> PluginCallFailure {
    let (sink, mut stream) = emit_channel();
    let cancel = CancellationToken::new();
    let options = CallOptions {
        sink: Some(sink),
        cancel: cancel.clone(),
        ..CallOptions::default()
    };
    let calling = tokio::spawn({
        let (instance, command) = (Arc::clone(instance), command.to_owned());
        async move { execute(&instance, &command, options).await }
    });
    stream.next().await.expect("it waits");
    cancel.cancel();
    calling.await.unwrap().unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_authors_names_the_place_and_the_program_goes_on() {
    let bench = bench();
    let instance = bench.instance(&load_odd(&bench)).await;
    let failure = Bench::execute(&instance, "raise of a kind")
        .await
        .unwrap_err();
    let PluginCallFailure::Fault {
        code: fault,
        message,
        ..
    } = &failure
    else {
        panic!("{failure:?}");
    };
    assert_eq!(*fault, code::PANIC);
    assert!(
        message.contains("ValueError: of a kind (odd.py:"),
        "{message}"
    );
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    let refused = Create {
        config: json!("refuse"),
        ..Bench::create()
    };
    let error = instance
        .plugin()
        .create(&refused, Arc::new(NoServices))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, PluginError::Create { reason, .. } if reason == "no instance is wanted."),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_in_a_call_is_named_with_its_cause_and_starts_again() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let instance = bench.instance(&plugin).await;
    for (number, (command, cause, words)) in [
        ("abort", "aborted (SIGABRT)", "just before the end"),
        ("exit 3", "`exit` with code 3", "the last words"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
        let outcome = Bench::execute(&instance, command).await;
        let failure = outcome.unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("odd 1.0.0"), "{said}");
        assert!(said.contains(cause) && said.contains(words), "{said}");
        assert!(
            matches!(failure, PluginCallFailure::WorkerEnded { .. }),
            "{said}"
        );
        assert_eq!(plugin.health().worker_ends, number as u64 + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_may_not_have_more_of_is_an_error_of_the_call() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let instance = bench.instance(&plugin).await;
    // Python says it itself: the limit of memory is the worker's, that of depth its own.
    for (number, (command, error)) in [("eat", "MemoryError"), ("recurse", "RecursionError")]
        .into_iter()
        .enumerate()
    {
        let failure = Bench::execute(&instance, command).await.unwrap_err();
        let said = failure.to_string();
        assert!(
            matches!(
                failure,
                PluginCallFailure::Fault {
                    code: code::PANIC,
                    ..
                }
            ),
            "{said}"
        );
        assert!(said.contains("odd") && said.contains(error), "{said}");
        let count = Bench::execute(&instance, "count").await.unwrap();
        assert_eq!(count, (number + 1).to_string());
    }
    assert_eq!(plugin.health().worker_ends, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_at_once_have_ten_processes() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let made = (0..10).map(|_| bench.instance(&plugin));
    let instances = join_all(made).await;
    let pids = join_all(instances.iter().map(|one| Bench::execute(one, "pid"))).await;
    let pids: std::collections::HashSet<String> = pids.into_iter().map(Result::unwrap).collect();
    assert_eq!(pids.len(), 10);
    let begun = Instant::now();
    let calls = instances
        .iter()
        .flat_map(|one| (0..50).map(|_| Bench::execute(one, "count")));
    let counted = join_all(calls).await;
    assert_eq!(counted.len(), 500);
    let last = counted
        .into_iter()
        .filter(|count| count.as_deref() == Ok("50"));
    assert_eq!(last.count(), 10);
    println!("500 calls of ten programs: {:?}", begun.elapsed());
    drop(instances);
    until(|| {
        let gone = |pid: &String| !std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists();
        pids.iter().all(gone)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_confined_as_a_worker_is() {
    let bench = bench();
    let plugin = load_odd(&bench);
    let work = bench.root.path().join("sessions/one/work");
    std::fs::create_dir_all(&work).unwrap();
    let instance = plugin
        .create_in(
            &Bench::create(),
            Arc::new(NoServices),
            &InstanceDirs::of_work(&[&work]),
        )
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret = bench.root.path().join("secret");
    std::fs::write(&secret, "a key").unwrap();
    let store = bench.loader.store().dir();
    for attempt in [
        format!("read {}", secret.display()),
        format!("write {}", secret.display()),
        format!("list {}", bench.root.path().display()),
        format!("list {}", store.display()),
        format!("list {}", bench.dir.display()),
        format!("read {}", bench.dir.join("odd.py").display()),
        "read /etc/shadow".to_owned(),
        format!("read /proc/{}/environ", std::process::id()),
        "write odd.py".to_owned(),
        "write new".to_owned(),
        "fork".to_owned(),
        format!("kill {}", std::process::id()),
        format!("connect {port}"),
    ] {
        let outcome = Bench::execute(&instance, &format!("try {attempt}"))
            .await
            .unwrap();
        assert!(
            ["error 1", "error 13"].contains(&outcome.as_str()),
            "{attempt}: {outcome}"
        );
    }
    for attempt in [
        format!("write {}/new", work.display()),
        "read odd.py".to_owned(),
        "read /usr/bin/python3".to_owned(),
    ] {
        let outcome = Bench::execute(&instance, &format!("try {attempt}"))
            .await
            .unwrap();
        assert_eq!(outcome, "done", "{attempt}");
    }
    let around = Bench::execute(&instance, "environment").await.unwrap();
    let around: Value = serde_json::from_str(&around).unwrap();
    assert_eq!(around["here"], json!(["conjure_plugin.py", "odd.py"]));
    // Its streams, the two that the SDK moved them to, and the directory that is listed.
    assert_eq!(around["open"], json!([0, 1, 2, 3, 4, 5]));
    let known = [
        "CONJURE_PLUGIN",
        "CONJURE_PLUGIN_VERSION",
        "CONJURE_PROTOCOL",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LOGNAME",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONNOUSERSITE",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_RUNTIME_DIR",
    ];
    let names = around["names"].as_array().unwrap();
    for name in names {
        assert!(known.contains(&name.as_str().unwrap()), "{name}");
    }
    for name in ["PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE"] {
        assert!(names.contains(&json!(name)), "{name}");
    }
}
