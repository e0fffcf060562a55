//! Libraries in worker processes: what becomes of the processes, and which libraries need one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_host::plugin::{
    AfterStop, CallOptions, FoundLibrary, Isolation, LoadedPlugin, Loader, LoaderOptions,
    NoServices, PluginCallFailure, PluginError, PluginLimits, WatchOptions, Watcher, WorkerOptions,
};
use conjure_kit::{build_plugin, conjure_bin};
use conjure_plugin_tests::{Bench, Plugin, envelope};
use serde_json::{Value, json};

use super::calls::until;
use super::confined::library as prober;
use super::sources::{aborting, constructing, marked};

fn workers(isolation: Isolation) -> WorkerOptions {
    let mut workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    workers.isolation = isolation;
    workers
}

fn options(workers: WorkerOptions) -> LoaderOptions {
    LoaderOptions {
        limits: PluginLimits {
            grace: Duration::from_millis(200),
            create: Duration::from_secs(5),
            ..PluginLimits::default()
        },
        worker: Some(workers),
        ..LoaderOptions::default()
    }
}

fn bench() -> Bench {
    Bench::with(options(workers(Isolation::Process)))
}

/// The workers of this test that run: process ids, by the file that each has open.
fn running(bench: &Bench) -> Vec<u32> {
    let store = bench.loader.store().dir().as_os_str().as_encoded_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let is_worker = line.windows(11).any(|part| part == b"plugin-host");
        (is_worker && line.windows(store.len()).any(|part| part == store)).then_some(id)
    });
    ids.collect()
}

async fn ends(bench: &Bench) {
    until(|| running(bench).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_has_a_worker_for_as_long_as_it_lives() {
    let bench = bench();
    let plugin = bench.load(&marked());
    assert_eq!(plugin.isolation(), Isolation::Process);
    // It was asked for its manifest, and nobody needs it now.
    ends(&bench).await;
    let one = bench.instance(&plugin).await;
    let two = bench.instance(&plugin).await;
    assert_eq!(running(&bench).len(), 2);
    // And a state of its own.
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "1");
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "2");
    assert_eq!(Bench::execute(&two, "count").await.unwrap(), "1");
    drop(one);
    until(|| running(&bench).len() == 1).await;
    assert_eq!(Bench::execute(&two, "count").await.unwrap(), "2");
    two.close(Duration::from_secs(2)).await;
    drop(two);
    ends(&bench).await;
    assert_eq!(plugin.health().worker_ends, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_of_a_worker_is_not_opened_by_the_host() {
    let before = Loader::opened();
    let bench = bench();
    let plugin = bench.load(&marked());
    let instance = bench.instance(&plugin).await;
    Bench::execute(&instance, "mark").await.unwrap();
    assert_eq!(Loader::opened(), before);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let store = bench.loader.store().dir().display().to_string();
    assert!(!maps.contains(&store));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_aborts_on_panic_has_a_worker_also_where_others_do_not() {
    let bench = Bench::with(options(workers(Isolation::InProcess)));
    let plugin = bench.load(&aborting());
    assert_eq!(plugin.isolation(), Isolation::Process);
    let instance = bench.instance(&plugin).await;
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    let failure = Bench::execute(&instance, "panic").await.unwrap_err();
    assert!(
        matches!(&failure, PluginCallFailure::WorkerEnded { end, .. } if end.contains("SIGABRT")),
        "{failure:?}"
    );
    assert!(failure.to_string().contains("as asked"), "{failure}");
    // The next call finds a new instance.
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    assert_eq!(plugin.health().worker_ends, 1);
    let other = bench.load(&marked());
    assert_eq!(other.isolation(), Isolation::InProcess);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_beyond_those_that_the_process_can_open_has_a_worker() {
    let bench = Bench::with(LoaderOptions {
        library_limit: 0,
        ..options(workers(Isolation::InProcess))
    });
    let plugin = bench.load(&marked());
    assert_eq!(plugin.isolation(), Isolation::Process);
    let instance = bench.instance(&plugin).await;
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_hangs_when_it_is_opened_hangs_its_worker_only() {
    let lost = Loader::lost_threads();
    for place in ["constructor", "manifest"] {
        let mut workers = workers(Isolation::Process);
        workers.env = vec![("CONJURE_TEST_HANG".into(), place.into())];
        let bench = Bench::with(LoaderOptions {
            deadline: Duration::from_millis(500),
            ..options(workers)
        });
        let error = bench.try_load(&constructing()).unwrap_err();
        assert!(
            matches!(error, PluginError::HungInWorker { .. }),
            "{place}: {error}"
        );
        assert!(error.to_string().contains("libconstructing"), "{error}");
        ends(&bench).await;
        // The system's loader is free for the next one.
        let next = self::bench();
        assert_eq!(next.load(&marked()).id().to_string(), "marked 1.0.0");
    }
    assert_eq!(Loader::lost_threads(), lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hung_is_waited_for_again_only_when_its_file_is_put_there_again() {
    let mut hanging = workers(Isolation::Process);
    hanging.env = vec![("CONJURE_TEST_HANG".into(), "constructor".into())];
    let bench = Bench::with(LoaderOptions {
        deadline: Duration::from_millis(500),
        ..options(hanging)
    });
    let library = std::fs::read(constructing()).unwrap();
    let path = bench.put("libconstructing.so", &library);
    let load = |loader: &Loader| {
        loader
            .load(&path, false)
            .map(|plugin| plugin.id().to_string())
    };
    let error = load(&bench.loader).unwrap_err();
    assert!(matches!(error, PluginError::HungInWorker { .. }), "{error}");
    // Another host, in which it would not hang.
    let other = Loader::new(
        bench.loader.store().clone(),
        options(workers(Isolation::Process)),
    );
    let error = load(&other).unwrap_err();
    assert!(matches!(error, PluginError::PreviousHang(_)), "{error}");
    let said = error.to_string();
    assert!(said.contains("`conjure plugin reload"), "{said}");
    bench.put("libconstructing.so", &library);
    let loaded = load(&other).unwrap();
    assert!(loaded.ends_with(" 1.0.0"), "{loaded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hung_is_tried_again_for_whoever_asks() {
    let mut hanging = workers(Isolation::Process);
    hanging.env = vec![("CONJURE_TEST_HANG".into(), "manifest".into())];
    let bench = Bench::with(LoaderOptions {
        deadline: Duration::from_millis(500),
        ..options(hanging)
    });
    let path = bench.put(
        "libconstructing.so",
        &std::fs::read(constructing()).unwrap(),
    );
    for _ in 0..2 {
        bench.loader.forget_hang(&path);
        let error = bench.loader.load(&path, false).unwrap_err();
        assert!(matches!(error, PluginError::HungInWorker { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn libraries_that_hang_hold_up_no_other_of_their_directory() {
    let mut hanging = workers(Isolation::Process);
    hanging.env = vec![("CONJURE_TEST_HANG".into(), "constructor".into())];
    let bench = Bench::with(LoaderOptions {
        deadline: Duration::from_secs(300),
        ..options(hanging)
    });
    let library = std::fs::read(constructing()).unwrap();
    let names = ["liba.so", "libb.so", "libc.so", "libd.so"];
    for name in names {
        bench.put(name, &library);
    }
    bench.put("libmarked.so", &std::fs::read(marked()).unwrap());
    let registry = bench.registry();
    let dirs = vec![bench.dir.clone()];
    let _watcher = Watcher::start(Arc::clone(&registry), dirs, WatchOptions::default());
    until(|| registry.snapshot().get("marked").is_some()).await;
    assert!(registry.snapshot().failed().is_empty(), "they hang");
    // Nobody waits for the end of their time.
    until(|| {
        for id in running(&bench) {
            let id = id.to_string();
            std::process::Command::new("kill")
                .args(["-9", &id])
                .status()
                .unwrap();
        }
        registry.snapshot().failed().len() == names.len()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_files_that_are_loaded_beside_each_other_the_first_one_counts() {
    let bench = bench();
    let library = std::fs::read(marked()).unwrap();
    let found = ["libc.so", "liba.so", "libb.so"].map(|name| FoundLibrary {
        path: bench.put(name, &library),
        named: false,
    });
    let registry = bench.registry();
    registry.load_all(&found);
    let snapshot = registry.snapshot();
    let there = snapshot.get("marked").unwrap().source().path();
    assert_eq!(there, Some(&*found[0].path));
    assert_eq!(snapshot.failed().len(), 2, "one of a name and version");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_starts_again_from_the_copy_when_the_file_is_another_one_or_gone() {
    let bench = bench();
    let plugin = bench.load(&marked());
    let instance = bench.instance(&plugin).await;
    let path = plugin.source().path().unwrap().to_owned();
    for change in [Some(&b"no library"[..]), None] {
        match change {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        kill(&bench, &plugin).await;
        assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    }
    // With the copy gone too there is nothing left to open, and that is said.
    kill(&bench, &plugin).await;
    for entry in std::fs::read_dir(bench.loader.store().dir()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let failure = Bench::execute(&instance, "count").await.unwrap_err();
    assert!(
        matches!(&failure, PluginCallFailure::NoWorker { reason, .. } if reason.contains("libmarked")),
        "{failure:?}"
    );
    assert!(failure.never_ran());
}

/// Kills the only worker, as a person or the system would.
async fn kill(bench: &Bench, plugin: &LoadedPlugin) {
    let ended = plugin.health().worker_ends;
    let [id] = running(bench)[..] else {
        panic!("not one worker");
    };
    let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    until(|| plugin.health().worker_ends > ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_known_library_offers_is_told_without_a_worker() {
    let bench = Bench::with(LoaderOptions {
        settled: Duration::ZERO,
        ..options(workers(Isolation::Process))
    });
    let path = bench.put("libmarked.so", &std::fs::read(marked()).unwrap());
    let first = bench.loader.load(&path, false).unwrap();
    ends(&bench).await;
    let second = Arc::new(bench.loader.load(&path, false).unwrap());
    assert_eq!(running(&bench), [] as [u32; 0]);
    assert_eq!(second.manifest(), first.manifest());
    assert_eq!(second.isolation(), Isolation::Process);
    let instance = bench.instance(&second).await;
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_always_ends_is_started_ever_more_slowly_and_that_is_said() {
    let bench = bench();
    let plugin = bench.load(&misbehaving());
    let instance = bench.instance(&plugin).await;
    let mut paused = None;
    for _ in 0..10 {
        match Bench::execute(&instance, "abort").await.unwrap_err() {
            PluginCallFailure::WorkerEnded { .. } => {}
            failure => {
                paused = Some(failure);
                break;
            }
        }
    }
    let failure = paused.expect("ten ends without an answer are too many");
    assert!(failure.never_ran(), "{failure:?}");
    let words = failure.to_string();
    assert!(
        words.contains("ended 6 times") && words.contains("SIGABRT"),
        "{words}"
    );
    let begun = Instant::now();
    while Bench::execute(&instance, "echo here").await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A backend that knows its sessions.
const KNOWING: &str = r#"
use std::collections::HashSet;
use std::sync::Mutex;
use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Open, ToolResult};
use conjure_skill_sdk::{export_backend, Backend, BackendPlugin, Cx, Error, Result};

#[derive(Default)]
struct Knowing(Mutex<HashSet<String>>);

fn name(cx: &Cx) -> String {
    cx.session().unwrap_or_default().to_owned()
}

impl Backend for Knowing {
    async fn open(&self, cx: Cx, _request: Open) -> Result<()> {
        self.0.lock().unwrap().insert(name(&cx));
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        if request.name == "abort" {
            std::process::abort();
        }
        if !self.0.lock().unwrap().contains(&name(&cx)) {
            return Err(Error::not_found("nobody opened this session"));
        }
        Ok(ToolResult::text("known"))
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        self.0.lock().unwrap().remove(&name(&cx));
        Ok(())
    }
}

fn plugin() -> BackendPlugin<Knowing> {
    BackendPlugin::new("knowing", "Knows its sessions", |_setup| Ok(Knowing::default()))
}

export_backend!(plugin, name = "knowing");
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_backend_are_opened_again_in_its_next_worker() {
    let library = Plugin {
        features: &["async"],
        ..Plugin::new("knowing", KNOWING)
    }
    .build();
    let bench = bench();
    let plugin = bench.load(&library);
    let backend = bench.instance(&plugin).await;
    let ask = async |session: &str, op: &str, body: Value| {
        let mut request: Value = serde_json::from_slice(&envelope(&body)).unwrap();
        request["session"] = session.into();
        let json = serde_json::to_vec(&request).unwrap();
        backend.request(op, json, CallOptions::default()).await
    };
    let call = |tool: &str| json!({ "name": tool, "arguments": {} });
    for session in ["one", "two", "closed"] {
        let opened = ask(session, "backend.open", json!({ "config": {} })).await;
        opened.unwrap();
    }
    ask("closed", "backend.close", json!({})).await.unwrap();
    for _ in 0..2 {
        let failure = ask("one", "backend.call", call("abort")).await.unwrap_err();
        assert!(
            matches!(failure, PluginCallFailure::WorkerEnded { .. }),
            "{failure:?}"
        );
        for session in ["one", "two"] {
            let reply = ask(session, "backend.call", call("any")).await.unwrap();
            assert!(String::from_utf8(reply).unwrap().contains("known"));
        }
        let unknown = ask("closed", "backend.call", call("any")).await;
        assert!(unknown.unwrap_err().to_string().contains("nobody opened"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_of_a_worker_come_to_their_end_when_one_does_not_stop() {
    let bench = bench();
    let plugin = bench.load(&misbehaving());
    let instance = bench.instance(&plugin).await;
    let neighbour = bench.instance(&plugin).await;
    let workers = running(&bench);
    let options = CallOptions {
        deadline: Some(Duration::from_millis(300)),
        ..CallOptions::default()
    };
    let hang = envelope(&json!({ "command": "hang" }));
    let (hung, slept) = tokio::join!(
        instance.request("skill.execute", hang, options),
        Bench::execute(&instance, "sleep 1500"),
    );
    assert!(
        matches!(
            hung,
            Err(PluginCallFailure::TimedOut {
                after: AfterStop::WorkerKilled,
                ..
            })
        ),
        "{hung:?}"
    );
    assert_eq!(slept.unwrap(), "sleep: done");
    until(|| running(&bench).len() == 1).await;
    for instance in [&instance, &neighbour] {
        assert_eq!(Bench::execute(instance, "echo on").await.unwrap(), "on");
    }
    // One is new, and the neighbour's is the one that it was.
    let now = running(&bench);
    assert_eq!(now.len(), 2);
    assert_eq!(now.iter().filter(|id| workers.contains(id)).count(), 1);
    assert_eq!(plugin.health().lost_threads, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_worker_is_told_with_its_name() {
    for (program, args) in [("/nowhere/at/all", &[][..]), ("/bin/true", &[])] {
        let bench = Bench::with(options(WorkerOptions {
            isolation: Isolation::Process,
            ..WorkerOptions::new(program, args)
        }));
        let error = bench.try_load(&marked()).unwrap_err().to_string();
        assert!(error.contains("libmarked"), "{error}");
        let reason = if program == "/bin/true" {
            "called `exit` with code 0"
        } else {
            program
        };
        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_ends_with_the_host_that_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    let here = scratch.path().canonicalize().unwrap().join("here");
    let hang = json!({ "command": format!("hang {}", here.display()) });
    let mut host = std::process::Command::new(conjure_bin().unwrap())
        .args(["call", "prober_execute", "--isolation", "process"])
        .args(["--args", &hang.to_string(), "--plugin"])
        .arg(prober())
        .env("CONJURE_DATA_DIR", bench.root.path())
        .current_dir(scratch.path())
        .spawn()
        .unwrap();
    until(|| here.exists()).await;
    assert_eq!(running(&bench).len(), 1);
    host.kill().unwrap();
    host.wait().unwrap();
    ends(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_has_none_of_the_hosts_variables_that_it_need_not_have() {
    let bench = bench();
    let plugin = Arc::new(load(&bench, &marked()));
    let _instance = plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap();
    let [id] = running(&bench)[..] else {
        panic!("not one worker");
    };
    let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    let names: Vec<&str> = environment
        .split('\0')
        .filter_map(|variable| variable.split_once('='))
        .map(|(name, _)| name)
        .collect();
    assert!(names.contains(&"PATH"), "{names:?}");
    // Cargo sets many for its tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(
        !names.iter().any(|name| name.starts_with("CARGO")),
        "{names:?}"
    );
}

fn load(bench: &Bench, library: &Path) -> LoadedPlugin {
    bench.try_load(library).unwrap()
}

fn misbehaving() -> PathBuf {
    build_plugin("conjure-misbehaving").unwrap()
}
