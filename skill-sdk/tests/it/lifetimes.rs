//! Places and lifetimes of what runs: threads, futures, instances.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    BackendCall, Bash, BashOutput, CatalogReply, CreateFile, Execute, HostInfo, Open, Progress,
    StrReplace, ToolResult, View, Viewed, Written,
};
use conjure_skill_sdk::testkit::{TestHost, Transport};
use conjure_skill_sdk::{
    Backend, BackendPlugin, Cx, Error, Executor, ExecutorPlugin, Result, Skill,
};
use serde_json::json;
use tokio::sync::Notify;

const DEADLINE: Duration = Duration::from_secs(30);

/// Tells on which thread it was dropped.
struct Tells(Sender<ThreadId>);

impl Drop for Tells {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

/// A backend whose calls never end, and which tells where it and they are dropped.
struct Endless {
    instance: Tells,
}

impl Backend for Endless {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, cx: Cx, _request: BackendCall) -> Result<ToolResult> {
        let _here = Tells(self.instance.0.clone());
        cx.stdout_async(b"running").await?;
        std::future::pending().await
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

fn endless(
    starts_in_place: bool,
) -> (
    Receiver<ThreadId>,
    impl Fn() -> BackendPlugin<Endless> + Send + Sync + 'static,
) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    (told, move || {
        let instance = Tells(tell.lock().unwrap().clone());
        let plugin = BackendPlugin::new("endless", "", move |_setup| Ok(Endless { instance }));
        match starts_in_place {
            true => plugin.starts_in_place(),
            false => plugin,
        }
    })
}

/// Both transports, with operations that start in place and others.
fn ways() -> impl Iterator<Item = (Transport, bool)> {
    let both = Transport::BOTH.into_iter();
    both.flat_map(|transport| [(transport, false), (transport, true)])
}

#[test]
fn dropping_the_future_of_start_runs_no_author_code_on_the_dropping_thread() {
    for (transport, starts_in_place) in ways() {
        let (dropped, plugin) = endless(starts_in_place);
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(plugin).unwrap();
        while dropped.try_recv().is_ok() {
            // The builder that only gave its manifest.
        }
        let running = plugin.start("backend.call", json!({ "name": "x" }));
        assert!(running.until(|seen| seen.stdout == b"running"));
        let outcome = running.release();
        assert_eq!(outcome.code(), Some(code::CANCELLED));
        let thread = dropped.recv_timeout(DEADLINE).unwrap();
        assert_ne!(thread, thread::current().id());
    }
}

#[test]
fn dropping_an_instance_runs_no_author_code_on_the_dropping_thread_and_ends_its_calls() {
    for (transport, starts_in_place) in ways() {
        let (dropped, plugin) = endless(starts_in_place);
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(plugin).unwrap();
        while dropped.try_recv().is_ok() {
            // The builder that only gave its manifest.
        }
        let running = plugin.start("backend.call", json!({ "name": "x" }));
        assert!(running.until(|seen| seen.stdout == b"running"));
        drop(plugin);
        for _ in ["call", "instance"] {
            let thread = dropped.recv_timeout(DEADLINE).unwrap();
            assert_ne!(thread, thread::current().id());
        }
        let code = running.wait().code();
        assert!(
            [Some(code::CANCELLED), Some(code::GONE)].contains(&code),
            "{code:?}"
        );
    }
}

/// Tells on which thread it begins, goes on and ends.
struct Wanders {
    told: Mutex<Sender<(&'static str, ThreadId)>>,
    tells: Sender<ThreadId>,
}

impl Backend for Wanders {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        let told = self.told.lock().unwrap().clone();
        let tell = move |what| told.send((what, thread::current().id())).unwrap();
        tell("begins");
        let _here = Tells(self.tells.clone());
        match request.name.as_str() {
            "at once" => return Ok(ToolResult::text("done")),
            "for ever" => {
                cx.stdout_async(b"running").await?;
                std::future::pending::<()>().await;
            }
            // Woken before it waits.
            "not yet" => tokio::task::yield_now().await,
            // Of the plugin's own runtime, which the thread that asks is none of.
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        let joined = tokio::spawn(async { "task" }).await.unwrap();
        tell("goes on");
        Ok(ToolResult::text(joined))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

#[test]
fn an_operation_that_starts_in_place_goes_on_and_ends_on_the_plugins_threads() {
    let (tell, told) = channel();
    let (tells, dropped) = channel();
    let both = Mutex::new((tell, tells));
    let host = TestHost::builder().build().unwrap();
    let plugin = host.link(move || {
        let (tell, tells) = both.lock().unwrap().clone();
        BackendPlugin::new("wanders", "", move |_setup| {
            let told = Mutex::new(tell);
            Ok(Wanders { told, tells })
        })
        .starts_in_place()
    });
    let plugin = plugin.unwrap();
    let started = |what: &str| plugin.start("backend.call", json!({ "name": what }));
    let here = thread::current().id();

    let next = || told.recv_timeout(DEADLINE).unwrap();

    for waits in ["for a while", "not yet"] {
        assert_eq!(started(waits).wait().text(), "task");
        assert_eq!(next(), ("begins", here));
        let (_, after) = next();
        assert_ne!(after, here);
        assert_eq!(dropped.recv_timeout(DEADLINE).unwrap(), after);
    }

    // A runtime of this program's own that was about to wake it is left with that.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let running = runtime.block_on(async { started("not yet") });
    assert_eq!(next(), ("begins", here));
    assert_eq!(next().0, "goes on");
    assert_eq!(running.wait().text(), "task");
    assert_ne!(dropped.recv_timeout(DEADLINE).unwrap(), here);

    assert_eq!(started("at once").wait().text(), "done");
    assert_eq!(next(), ("begins", here));
    assert_eq!(dropped.recv_timeout(DEADLINE).unwrap(), here);

    let running = started("for ever");
    assert!(running.until(|seen| seen.stdout == b"running"));
    assert_eq!(next(), ("begins", here));
    assert_eq!(running.release().code(), Some(code::CANCELLED));
    assert_ne!(dropped.recv_timeout(DEADLINE).unwrap(), here);

    // The ABI's `call` is for threads that may wait, and uses the runtime for all of it.
    let request = json!({ "name": "at once" });
    assert_eq!(plugin.call("backend.call", request).text(), "done");
    let (_, begun) = next();
    assert_ne!(begun, here);
}

/// Tells on which threads it runs; a command waits until it may go on.
struct Commands {
    told: Sender<ThreadId>,
    may_go_on: Arc<Notify>,
}

impl Commands {
    fn tell(&self) {
        self.told.send(thread::current().id()).unwrap();
    }
}

impl Executor for Commands {
    async fn bash(&self, _cx: Cx, _request: Bash) -> Result<BashOutput> {
        self.tell();
        self.may_go_on.notified().await;
        self.tell();
        Ok(BashOutput::default())
    }

    async fn view(&self, _cx: Cx, _request: View) -> Result<Viewed> {
        self.tell();
        Ok(Viewed::default())
    }

    async fn create_file(&self, _cx: Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("no"))
    }

    async fn str_replace(&self, _cx: Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("no"))
    }
}

#[test]
fn a_command_that_starts_in_place_goes_on_on_the_plugins_threads_and_files_are_all_theirs() {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let go_on = Arc::new(Notify::new());
    let may_go_on = Arc::clone(&go_on);
    let host = TestHost::builder().build().unwrap();
    let plugin = host.link(move || {
        let told = tell.lock().unwrap().clone();
        let may_go_on = Arc::clone(&may_go_on);
        let commands = Commands { told, may_go_on };
        ExecutorPlugin::new("commands", "", move |_setup| Ok(commands)).starts_in_place()
    });
    let plugin = plugin.unwrap();
    let here = thread::current().id();
    let next = || told.recv_timeout(DEADLINE).unwrap();
    let runs = plugin.start("executor.bash", json!({ "command": "x" }));
    assert_eq!(next(), here);
    go_on.notify_one();
    assert_ne!(next(), here);
    assert_eq!(runs.wait().code(), None);
    let seen = plugin.start("executor.view", json!({ "path": "x" }));
    assert_eq!(seen.wait().code(), None);
    assert_ne!(next(), here);
}

#[test]
fn a_call_that_is_given_up_while_its_instance_ends_runs_no_author_code_on_either_thread() {
    for transport in Transport::BOTH {
        for _ in 0..100 {
            let (dropped, plugin) = endless(true);
            let host = TestHost::builder().transport(transport).build().unwrap();
            let plugin = host.link(plugin).unwrap();
            while dropped.try_recv().is_ok() {
                // The builder that only gave its manifest.
            }
            let running = plugin.start("backend.call", json!({ "name": "x" }));
            assert!(running.until(|seen| seen.stdout == b"running"));
            let gives_up = thread::spawn(move || running.release().code());
            let gave_up = gives_up.thread().id();
            drop(plugin);
            for _ in ["call", "instance"] {
                let thread = dropped.recv_timeout(DEADLINE).unwrap();
                assert!(![gave_up, thread::current().id()].contains(&thread));
            }
            gives_up.join().unwrap();
        }
    }
}

#[test]
fn calls_from_many_threads_at_once_are_not_mixed_up() {
    let skill = || {
        Skill::new("echo", "").execute("TEXT", |cx, command: Execute| {
            cx.stdout(command.command.as_bytes())?;
            cx.kv_set(&command.command, json!(cx.session()))?;
            Ok::<_, Error>(command.command)
        })
    };
    for transport in Transport::BOTH {
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(skill).unwrap();
        thread::scope(|scope| {
            for worker in 0..16 {
                let plugin = &plugin;
                scope.spawn(move || {
                    for call in 0..50 {
                        let text = format!("{worker}/{call}");
                        let session = format!("session {worker}");
                        let outcome = plugin
                            .session(&session)
                            .call("skill.execute", json!({ "command": text }));
                        assert_eq!(outcome.text(), text);
                        assert_eq!(outcome.stdout, text.as_bytes());
                    }
                });
            }
        });
        let kv = host.kv();
        assert_eq!(kv.len(), 16 * 50);
        assert_eq!(kv["7/49"], json!("session 7"));
    }
}

#[test]
fn a_blocking_call_sees_that_it_is_cancelled() {
    let skill = || {
        Skill::new("loops", "").execute("", |cx, _: Execute| -> Result<String> {
            cx.stderr(b"looping")?;
            loop {
                cx.check()?;
                thread::yield_now();
            }
        })
    };
    for transport in Transport::BOTH {
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(skill).unwrap();
        let running = plugin.background("skill.execute", json!({ "command": "" }));
        assert!(running.until(|seen| seen.stderr == b"looping"));
        running.cancel();
        let outcome = running.wait();
        assert_eq!(
            outcome.result().unwrap(),
            ToolResult::error("the call was cancelled")
        );
    }
}

#[test]
fn a_context_that_outlives_its_call_does_nothing_more() {
    for transport in Transport::BOTH {
        let kept: Arc<Mutex<Option<Cx>>> = Arc::default();
        let skill = {
            let kept = Arc::clone(&kept);
            move || {
                let kept = Arc::clone(&kept);
                Skill::new("keeps", "").execute("", move |cx, _: Execute| {
                    *kept.lock().unwrap() = Some(cx.clone());
                })
            }
        };
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(skill).unwrap();
        plugin
            .call("skill.execute", json!({ "command": "" }))
            .reply
            .unwrap();
        let cx = kept.lock().unwrap().take().unwrap();
        assert!(cx.cancelled());
        assert_eq!(cx.stdout(b"late").unwrap_err().code(), code::CANCELLED);
        assert_eq!(cx.kv_get("a").unwrap_err().code(), code::GONE);
    }
}

#[test]
fn a_skill_uses_every_basic_host_operation() {
    let skill = || {
        Skill::new("asks", "").execute("", |cx, _: Execute| {
            cx.kv_set("a/1", json!(1))?;
            cx.kv_set("a/2", json!(2))?;
            cx.kv_set("b", json!(3))?;
            cx.kv_delete("a/1")?;
            let stored = (cx.kv_get("a/2")?, cx.kv_get("a/1")?, cx.kv_list("a/")?);
            let artifact = cx.file(conjure_skill_sdk::protocol::FileRef::at(
                "/tmp/x/report.txt",
            ))?;
            cx.progress(1.0, Some(2.0), "half")?;
            let _: serde_json::Value = cx.host(
                "progress",
                &Progress {
                    done: 1.0,
                    ..Progress::default()
                },
            )?;
            let secret = cx.secret("token")?;
            let denied = cx.secret("other").unwrap_err().code();
            let unknown = cx
                .host::<_, serde_json::Value>("dance", &json!({}))
                .unwrap_err()
                .code();
            let root = cx.roots()?.remove(0).uri;
            Ok::<_, Error>(json!([stored, artifact, secret, denied, unknown, root]))
        })
    };
    for transport in Transport::BOTH {
        let host = TestHost::builder()
            .transport(transport)
            .secret("token", "t-1")
            .root("file:///work")
            .build()
            .unwrap();
        let plugin = host.link(skill).unwrap();
        let outcome = plugin.call("skill.execute", json!({ "command": "" }));
        assert_eq!(
            outcome.result().unwrap().structured,
            Some(json!([
                [2, null, ["a/2"]],
                "artifact-1",
                "t-1",
                code::DENIED,
                code::UNSUPPORTED,
                "file:///work",
            ]))
        );
        assert_eq!(host.files()[0].name, "report.txt");
        assert_eq!(host.progress().len(), 1);
        assert_eq!(
            outcome.events,
            [json!({ "event": "progress", "done": 1.0, "total": 2.0, "message": "half" })]
        );
    }
}

#[test]
fn an_instance_learns_who_its_host_is_and_what_it_serves() {
    let (tell, told) = channel::<HostInfo>();
    let tell = Mutex::new(tell);
    let skill = move || {
        let tell = tell.lock().unwrap().clone();
        Skill::new("asks", "").on_create(move |setup| {
            let _ = tell.send(setup.create.host.clone());
            setup.config::<std::collections::BTreeMap<String, u32>>()?;
            Ok(())
        })
    };
    let host = TestHost::builder()
        .config(json!({ "n": "one" }))
        .build()
        .unwrap();
    let refused = host.link(skill).unwrap_err();
    assert_eq!(refused.code(), code::INVALID);
    assert_eq!(
        refused.message(),
        "the configuration does not fit: invalid type: string \"one\", expected u32"
    );
    let info = told.recv_timeout(DEADLINE).unwrap();
    assert_eq!(info.name, "testkit");
    assert!(info.operations.contains(&"kv.get/1".to_owned()));
    assert!(!info.operations.contains(&"sample/1".to_owned()));
}
