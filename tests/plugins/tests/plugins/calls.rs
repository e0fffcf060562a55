//! Requests to instances, of libraries and of plugins that are linked into the host.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use conjure_abi::{EmitKind, EmitStatus, Fault, code};
use conjure_host::plugin::{
    AfterStop, CallMeta, CallOptions, HostServices, Instance, LoadedPlugin, NoServices,
    PluginCallFailure, PluginError, PluginId, PluginLimits, emit_channel,
};
use conjure_plugin_tests::{Bench, envelope};
use conjure_skill_sdk::export::Exported;
use conjure_skill_sdk::protocol::{Elicit, Elicited, Empty, Execute, host_op};
use conjure_skill_sdk::{Cx, Error, Setup, Skill};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::sources::marked;

pub(crate) fn limits() -> PluginLimits {
    PluginLimits {
        grace: Duration::from_millis(100),
        ..PluginLimits::default()
    }
}

pub(crate) fn linked<E: Exported>(
    make: impl Fn() -> E + Send + Sync + 'static,
) -> Arc<LoadedPlugin> {
    linked_with(make, limits())
}

pub(crate) fn linked_with<E: Exported>(
    make: impl Fn() -> E + Send + Sync + 'static,
    limits: PluginLimits,
) -> Arc<LoadedPlugin> {
    Arc::new(LoadedPlugin::linked(make, "1.0.0", limits).unwrap())
}

pub(crate) async fn instance(plugin: &Arc<LoadedPlugin>) -> Arc<Instance> {
    plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap()
}

pub(crate) async fn execute(
    instance: &Instance,
    command: &str,
    options: CallOptions,
) -> Result<String, PluginCallFailure> {
    let json = envelope(&json!({ "command": command }));
    let reply = instance.request("skill.execute", json, options).await?;
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    Ok(reply["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// Waits for something to become so, at most ten seconds.
pub(crate) async fn until(what: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.expect("it becomes so");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_of_a_library_share_no_state() {
    let bench = Bench::new();
    let plugin = bench.load(&marked());
    let (one, two) = (bench.instance(&plugin).await, bench.instance(&plugin).await);
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "1");
    assert_eq!(Bench::execute(&one, "count").await.unwrap(), "2");
    assert_eq!(Bench::execute(&two, "count").await.unwrap(), "1");
    assert_eq!(plugin.instances(), 2);
    drop(one);
    assert_eq!(plugin.instances(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b22_a_panic_in_a_library_is_a_failure_that_names_it_and_the_next_call_is_served() {
    let bench = Bench::new();
    let instance = bench.instance(&bench.load(&marked())).await;
    let failure = Bench::execute(&instance, "panic").await.unwrap_err();
    assert!(
        matches!(&failure, PluginCallFailure::Fault { plugin, code: code::PANIC, message }
            if plugin == "marked 1.0.0" && message.contains("as asked")),
        "{failure:?}"
    );
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_streams_in_order_through_a_bounded_channel() {
    const PIECES: usize = 2_000;
    let plugin = linked(|| {
        Skill::new("flood", "Writes").execute("go", |cx, _: Execute| {
            for number in 0..PIECES {
                cx.stdout(format!("{number:01000}").as_bytes())?;
            }
            Ok::<_, Error>("done")
        })
    });
    let instance = instance(&plugin).await;
    let (sink, mut stream) = emit_channel();
    let reader = tokio::spawn(async move {
        let mut count = 0;
        while let Some(piece) = stream.next().await {
            assert_eq!(piece.kind, EmitKind::Stdout);
            assert_eq!(piece.bytes, format!("{count:01000}").into_bytes());
            count += 1;
        }
        count
    });
    let options = CallOptions {
        sink: Some(sink),
        ..CallOptions::default()
    };
    assert_eq!(execute(&instance, "go", options).await.unwrap(), "done");
    assert_eq!(reader.await.unwrap(), PIECES);
    // Without anybody who listens the output is taken and dropped.
    assert_eq!(
        execute(&instance, "go", CallOptions::default())
            .await
            .unwrap(),
        "done"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_may_answer_within_its_grace() {
    let started = Arc::new(Notify::new());
    let plugin = linked_with(
        {
            let started = Arc::clone(&started);
            move || {
                let started = Arc::clone(&started);
                Skill::new("waiter", "Waits").execute("go", move |cx, _: Execute| {
                    started.notify_one();
                    cx.host::<_, Empty>(host_op::CALL_CANCELLED, &Empty {})?;
                    assert!(cx.cancelled());
                    Ok::<_, Error>("stopped")
                })
            }
        },
        PluginLimits::default(),
    );
    let instance = instance(&plugin).await;
    let cancel = CancellationToken::new();
    let options = CallOptions {
        cancel: cancel.clone(),
        ..CallOptions::default()
    };
    let call = execute(&instance, "go", options);
    let (result, ()) = tokio::join!(call, async {
        started.notified().await;
        cancel.cancel();
    });
    let failure = result.unwrap_err();
    let PluginCallFailure::Cancelled { late, after, .. } = failure else {
        panic!("{failure}");
    };
    assert_eq!(after, AfterStop::Stopped);
    assert!(
        String::from_utf8(late.unwrap().unwrap())
            .unwrap()
            .contains("stopped")
    );
    assert_eq!(plugin.health().lost_threads, 0);
    // The same when its time is up.
    let options = CallOptions {
        deadline: Some(Duration::from_millis(20)),
        ..CallOptions::default()
    };
    let failure = execute(&instance, "go", options).await.unwrap_err();
    assert!(
        matches!(
            failure,
            PluginCallFailure::TimedOut {
                late: Some(Ok(_)),
                after: AfterStop::Stopped,
                ..
            }
        ),
        "{failure:?}"
    );
}

/// A skill that blocks and does not listen, and what lets it go on.
pub(crate) fn deaf(limits: PluginLimits) -> (Arc<LoadedPlugin>, mpsc::Sender<()>) {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let plugin = linked_with(
        move || {
            let gate = Arc::clone(&gate);
            Skill::new("deaf", "Does not listen").execute(
                "wait | answer",
                move |_cx, c: Execute| {
                    if c.command == "wait" {
                        let _ = gate.lock().map(|gate| gate.recv());
                    }
                    "done"
                },
            )
        },
        limits,
    );
    (plugin, release)
}

pub(crate) fn hurried() -> CallOptions {
    CallOptions {
        deadline: Some(Duration::from_millis(10)),
        ..CallOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_stop_is_abandoned_and_its_thread_counted() {
    let (plugin, release) = deaf(limits());
    let instance = instance(&plugin).await;
    let failure = execute(&instance, "wait", hurried()).await.unwrap_err();
    assert!(
        matches!(
            failure,
            PluginCallFailure::TimedOut {
                after: AfterStop::StillRunning,
                ..
            }
        ),
        "{failure:?}"
    );
    assert!(failure.to_string().starts_with("deaf 1.0.0"), "{failure}");
    assert_eq!(plugin.health().lost_threads, 1);
    assert_eq!(
        execute(&instance, "answer", CallOptions::default())
            .await
            .unwrap(),
        "done"
    );
    drop(release);
    until(|| plugin.health().lost_threads == 0).await;
    assert_eq!(plugin.health().abandoned, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_offences_quarantine_the_plugin_and_nothing_else() {
    let (plugin, _release) = deaf(limits());
    let (neighbour, _other) = deaf(limits());
    let (first, neighbour) = (instance(&plugin).await, instance(&neighbour).await);
    for _ in 0..3 {
        execute(&first, "wait", hurried()).await.unwrap_err();
    }
    let failure = execute(&first, "answer", CallOptions::default())
        .await
        .unwrap_err();
    assert!(
        failure.never_ran() && failure.to_string().contains("reload"),
        "{failure}"
    );
    let refused = plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, PluginError::Quarantined { .. }),
        "{refused}"
    );
    assert_eq!(
        execute(&neighbour, "answer", CallOptions::default())
            .await
            .unwrap(),
        "done"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_plugins_threads_wait_and_then_are_told() {
    let (plugin, release) = deaf(PluginLimits {
        threads: 1,
        ..PluginLimits::default()
    });
    let instance = instance(&plugin).await;
    let first = tokio::spawn({
        let instance = Arc::clone(&instance);
        async move { execute(&instance, "wait", CallOptions::default()).await }
    });
    until(|| plugin.health().calls == 2).await;
    let failure = loop {
        match execute(&instance, "answer", hurried()).await {
            Err(failure) => break failure,
            // It was quicker than the first one.
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    assert!(
        matches!(failure, PluginCallFailure::Busy { threads: 1, .. }) && failure.never_ran(),
        "{failure:?}"
    );
    drop(release);
    assert_eq!(first.await.unwrap().unwrap(), "done");
    assert_eq!(
        execute(&instance, "answer", CallOptions::default())
            .await
            .unwrap(),
        "done"
    );
}

/// Answers `elicit` when it is told to, and remembers what it was asked.
#[derive(Default)]
struct Person {
    asked: Notify,
    answer: Arc<Notify>,
    metas: Mutex<Vec<(String, CallMeta)>>,
}

impl HostServices for Person {
    fn is_interactive(&self, op: &str) -> bool {
        op == host_op::ELICIT
    }

    fn host(
        &self,
        plugin: &PluginId,
        call: &CallMeta,
        op: &str,
        _json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
        self.metas
            .lock()
            .unwrap()
            .push((format!("{plugin} {op}"), call.clone()));
        self.asked.notify_one();
        let answer = Arc::clone(&self.answer);
        Box::pin(async move {
            answer.notified().await;
            Ok(br#"{"action":"accept"}"#.to_vec())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_person_gives_the_thread_slot_back() {
    let plugin = linked_with(
        || {
            Skill::new("asker", "Asks").execute("ask | answer", |cx, c: Execute| {
                if c.command == "ask" {
                    let request = serde_json::from_value::<Elicit>(
                        json!({ "message": "Really?", "schema": {} }),
                    )?;
                    let _: Elicited = cx.elicit(&request)?;
                }
                Ok::<_, Error>("done")
            })
        },
        PluginLimits {
            threads: 1,
            ..PluginLimits::default()
        },
    );
    let person = Arc::new(Person::default());
    let services = Arc::clone(&person) as Arc<dyn HostServices>;
    let instance = plugin.create(&Bench::create(), services).await.unwrap();
    let meta = CallMeta {
        session: Some("s1".into()),
        call_id: Some("c1".into()),
        turn_id: None,
    };
    let asking = tokio::spawn({
        let (instance, meta) = (Arc::clone(&instance), meta.clone());
        async move {
            let options = CallOptions {
                meta,
                ..CallOptions::default()
            };
            execute(&instance, "ask", options).await
        }
    });
    person.asked.notified().await;
    assert_eq!(
        execute(&instance, "answer", CallOptions::default())
            .await
            .unwrap(),
        "done"
    );
    person.answer.notify_one();
    assert_eq!(asking.await.unwrap().unwrap(), "done");
    assert_eq!(
        *person.metas.lock().unwrap(),
        [("asker 1.0.0 elicit".to_owned(), meta)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_outlives_its_call_is_gone_and_holds_nothing() {
    let kept = Arc::new(Mutex::new(None::<Cx>));
    let plugin = linked({
        let kept = Arc::clone(&kept);
        move || {
            let kept = Arc::clone(&kept);
            Skill::new("keeper", "Keeps its context").execute("go", move |cx, _: Execute| {
                *kept.lock().unwrap() = Some(cx.clone());
                "done"
            })
        }
    });
    let services = Arc::new(NoServices);
    let instance = plugin
        .create(
            &Bench::create(),
            Arc::clone(&services) as Arc<dyn HostServices>,
        )
        .await
        .unwrap();
    execute(&instance, "go", CallOptions::default())
        .await
        .unwrap();
    let cx = kept.lock().unwrap().take().unwrap();
    assert!(cx.cancelled());
    assert_eq!(cx.try_emit(EmitKind::Stdout, b"x"), EmitStatus::Cancelled);
    let error = cx
        .host_async::<_, Empty>("kv.get", &Empty {})
        .await
        .unwrap_err();
    assert_eq!(error.code(), code::GONE);
    drop(instance);
    assert_eq!(Arc::strong_count(&services), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn author_code_of_a_destructor_runs_on_no_thread_of_the_hosts() {
    struct Witness(mpsc::Sender<Option<String>>);
    impl Drop for Witness {
        fn drop(&mut self) {
            let _ = self
                .0
                .send(std::thread::current().name().map(str::to_owned));
        }
    }
    let (sender, ended) = mpsc::channel();
    let plugin = linked(move || {
        let witness = Witness(sender.clone());
        Skill::new("ender", "Ends").execute("go", move |_cx, _: Execute| {
            let _ = &witness;
            "done"
        })
    });
    // The one that the manifest was made from.
    let _ = ended.recv_timeout(Duration::from_secs(10)).unwrap();
    let instance = instance(&plugin).await;
    execute(&instance, "go", CallOptions::default())
        .await
        .unwrap();
    instance.close(Duration::from_secs(10)).await;
    drop(instance);
    let thread = ended.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(thread.as_deref(), Some("plugin-call"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_refuses_its_configuration_makes_no_instance() {
    let plugin = linked(|| {
        Skill::new("picky", "Wants more")
            .on_create(|_: &Setup| Err(Error::invalid("no key is set")))
    });
    let error = plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("picky 1.0.0"), "{error}");
    assert!(error.to_string().contains("no key is set"), "{error}");
    assert_eq!(plugin.instances(), 0);
}
