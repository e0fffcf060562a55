//! A panic in any kind of author code is an error with its message and place, and the next call
//! works.

use std::sync::atomic::{AtomicBool, Ordering};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    BackendCall, Bash, BashOutput, CatalogReply, CreateFile, Execute, Open, StrReplace, ToolResult,
    View, Viewed, Written,
};
use conjure_skill_sdk::testkit::{Outcome, Plugin, TestHost, Transport};
use conjure_skill_sdk::{
    Backend, BackendPlugin, Blocking, BlockingExecutor, Cx, Error, Executor, ExecutorPlugin,
    Exported, IntoToolResult, Result, Skill,
};
use serde_json::json;

/// What is asked of every plugin here.
fn act(what: &str) -> String {
    match what {
        "plain" => panic!("on purpose"),
        "formatted" => panic!("on {}", "purpose"),
        "index" => vec![0][what.len()].to_string(),
        "payload" => std::panic::panic_any(Bomb),
        other => other.to_owned(),
    }
}

/// Panics whenever it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped on purpose");
    }
}

fn link<E: Exported + 'static>(
    transport: Transport,
    make: impl Fn() -> E + Send + Sync + 'static,
) -> Result<Plugin> {
    let host = TestHost::builder().transport(transport).build().unwrap();
    host.link(make)
}

fn assert_panicked(outcome: &Outcome, message: &str) {
    assert_eq!(outcome.code(), Some(code::PANIC), "{outcome:?}");
    assert_place(&outcome.text(), message);
}

/// `the plugin panicked at FILE:LINE: MESSAGE`
fn assert_place(text: &str, message: &str) {
    let place = text
        .strip_prefix("the plugin panicked at ")
        .and_then(|text| text.strip_suffix(message))
        .and_then(|text| text.strip_suffix(": "));
    let Some((file, line)) = place.and_then(|place| place.rsplit_once(':')) else {
        panic!("no place and message in: {text}");
    };
    assert!(file.ends_with("panics.rs"), "{text}");
    assert!(line.parse::<u32>().is_ok(), "{text}");
}

/// Asks for every kind of panic, and for an ordinary answer in between.
fn survives(ask: impl Fn(&str) -> Outcome, text: impl Fn(&Outcome) -> String) {
    for (what, message) in [
        ("plain", "on purpose"),
        ("formatted", "on purpose"),
        (
            "index",
            "index out of bounds: the len is 1 but the index is 5",
        ),
        ("payload", "(a panic without a message)"),
    ] {
        assert_panicked(&ask(what), message);
        let next = ask("hello");
        assert_eq!(text(&next), "hello", "{next:?}");
    }
}

#[test]
fn b22_a_panic_in_a_skills_callback_is_contained() {
    for transport in Transport::BOTH {
        let plugin = link(transport, || {
            Skill::new("panics", "")
                .execute("", |_cx, command: Execute| act(&command.command))
                .raw_tool(
                    "typed",
                    "",
                    json!({}),
                    conjure_skill_sdk::ToolOptions::new(),
                    |_cx, what: serde_json::Value| {
                        Late(what.as_str().unwrap_or_default().to_owned())
                    },
                )
        })
        .unwrap();
        let execute = |what: &str| plugin.call("skill.execute", json!({ "command": what }));
        survives(execute, Outcome::text);
        // The conversion of a result is author code too.
        survives(|what| plugin.call("skill.tool.typed", what), Outcome::text);
    }
}

struct Late(String);

impl IntoToolResult for Late {
    fn into_tool_result(self) -> ToolResult {
        ToolResult::text(act(&self.0))
    }
}

struct Runs;

impl Executor for Runs {
    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        // On the other side of an await, so on a poll that is not the first.
        cx.kv_set_async("seen", json!(request.command)).await?;
        Ok(BashOutput {
            stdout: act(&request.command),
            ..BashOutput::default()
        })
    }

    async fn view(&self, _cx: Cx, request: View) -> Result<Viewed> {
        Ok(Viewed {
            content: act(&request.path),
            ..Viewed::default()
        })
    }

    async fn create_file(&self, _cx: Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("no"))
    }

    async fn str_replace(&self, _cx: Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("no"))
    }
}

impl BlockingExecutor for Runs {
    fn bash(&self, _cx: &Cx, request: Bash) -> Result<BashOutput> {
        Ok(BashOutput {
            stdout: act(&request.command),
            ..BashOutput::default()
        })
    }

    fn view(&self, _cx: &Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("no"))
    }

    fn create_file(&self, _cx: &Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("no"))
    }

    fn str_replace(&self, _cx: &Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("no"))
    }
}

fn stdout(outcome: &Outcome) -> String {
    outcome.parse::<BashOutput>().unwrap().stdout
}

#[test]
fn b22_a_panic_in_an_executor_is_contained() {
    for transport in Transport::BOTH {
        let ordinary = || ExecutorPlugin::new("panics", "", |_setup| Ok(Runs));
        let in_place = move || ordinary().starts_in_place();
        for plugin in [link(transport, ordinary), link(transport, in_place)] {
            executor_panics(&plugin.unwrap());
        }
    }
}

fn executor_panics(plugin: &Plugin) {
    let bash = |what: &str| plugin.call("executor.bash", json!({ "command": what }));
    survives(bash, stdout);
    let bash = |what: &str| {
        let command = json!({ "command": what });
        plugin.start("executor.bash", command).wait()
    };
    survives(bash, stdout);
    let view = |what: &str| plugin.call("executor.view", json!({ "path": what }));
    survives(view, |outcome| outcome.parse::<Viewed>().unwrap().content);
}

#[test]
fn b22_a_panic_in_a_blocking_executor_is_contained() {
    for transport in Transport::BOTH {
        let plugin = link(transport, || {
            ExecutorPlugin::new("panics", "", |_setup| Ok(Blocking::new(Runs)))
        })
        .unwrap();
        let bash = |what: &str| plugin.call("executor.bash", json!({ "command": what }));
        survives(bash, stdout);
    }
}

/// A backend that panics where it is told to.
struct Serves;

impl Backend for Serves {
    async fn open(&self, _cx: Cx, request: Open) -> Result<()> {
        act(request.options.as_str().unwrap_or_default());
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        panic!("no catalog on purpose");
    }

    async fn call(&self, _cx: Cx, request: BackendCall) -> Result<ToolResult> {
        if request.name == "local" {
            // The call is fine until its locals are dropped.
            let _bomb = Bomb;
            return Ok(ToolResult::text("never seen"));
        }
        Ok(ToolResult::text(act(&request.name)))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }

    async fn watch(&self, _cx: Cx) -> Result<()> {
        panic!("blind on purpose");
    }
}

#[test]
fn b22_a_panic_in_a_backend_is_contained() {
    let ordinary = || BackendPlugin::new("panics", "", |_setup| Ok(Serves));
    let in_place = move || ordinary().starts_in_place();
    for transport in Transport::BOTH {
        for plugin in [link(transport, ordinary), link(transport, in_place)] {
            backend_panics(&plugin.unwrap());
        }
    }
}

fn backend_panics(plugin: &Plugin) {
    for is_started in [false, true] {
        let call = |what: &str| {
            let request = json!({ "name": what });
            match is_started {
                true => plugin.start("backend.call", request).wait(),
                false => plugin.call("backend.call", request),
            }
        };
        survives(call, Outcome::text);
        assert_panicked(&call("local"), "dropped on purpose");
        let catalog = plugin.call("backend.catalog", json!({}));
        assert_panicked(&catalog, "no catalog on purpose");
        let watch = plugin.start("backend.watch", json!({})).wait();
        assert_panicked(&watch, "blind on purpose");
        let open = plugin.call("backend.open", json!({ "options": "plain" }));
        assert_panicked(&open, "on purpose");
        assert_eq!(call("still here").text(), "still here");
    }
}

#[test]
fn b22_a_panic_while_an_instance_is_made_refuses_it() {
    for transport in Transport::BOTH {
        let builder = link(transport, || -> Skill { panic!("no builder on purpose") });
        let on_create = link(transport, || {
            Skill::new("panics", "").on_create(|_setup| panic!("no instance on purpose"))
        });
        let executor = link(transport, || {
            ExecutorPlugin::new("panics", "", |_setup| -> Result<Runs> {
                panic!("no executor on purpose")
            })
        });
        let backend = link(transport, || {
            BackendPlugin::new("panics", "", |_setup| -> Result<Serves> {
                panic!("no backend on purpose")
            })
        });
        for (made, message) in [
            (builder, "no builder on purpose"),
            (on_create, "no instance on purpose"),
            (executor, "no executor on purpose"),
            (backend, "no backend on purpose"),
        ] {
            let error = made.unwrap_err();
            assert_eq!(error.code(), code::PANIC);
            assert_place(error.message(), message);
        }
    }
}

#[test]
fn b22_a_panic_in_an_exported_builder_gives_a_manifest_that_says_so() {
    fn make() -> Skill {
        panic!("no manifest on purpose")
    }
    let json = conjure_skill_sdk::export::manifest(make, "panics", "1.0.0");
    let manifest: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_place(
        manifest["error"].as_str().unwrap(),
        "no manifest on purpose",
    );
}

#[test]
fn b22_a_panic_in_a_destructor_is_contained() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Flags(Bomb);
    impl Drop for Flags {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    for transport in Transport::BOTH {
        // A new one for every builder: the one that gives the manifest goes off as well.
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(|| {
            let state = Flags(Bomb);
            Skill::new("panics", "").execute("", move |_cx, _: Execute| {
                let Flags(_bomb) = &state;
                "fine"
            })
        });
        // Its manifest could not be made without a panic, which is an error and no more.
        let error = plugin.unwrap_err();
        assert_eq!(error.code(), code::PANIC);
        assert!(DROPPED.load(Ordering::SeqCst));
    }
    for transport in Transport::BOTH {
        let plugin = link(transport, || {
            BackendPlugin::new("panics", "", |_setup| Ok(Explodes(Bomb)))
        })
        .unwrap();
        assert_eq!(
            plugin.call("backend.call", json!({ "name": "x" })).text(),
            "x"
        );
        drop(plugin);
        let plugin = link(transport, || {
            let state = std::sync::Mutex::new(None);
            Skill::new("panics", "").execute("", move |_cx, _: Execute| {
                *state.lock().unwrap() = Some(Bomb);
                "armed"
            })
        })
        .unwrap();
        assert_eq!(
            plugin
                .call("skill.execute", json!({ "command": "" }))
                .text(),
            "armed"
        );
        drop(plugin);
    }
}

/// A backend whose own destructor panics, when the instance is dropped.
struct Explodes(Bomb);

impl Backend for Explodes {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        Ok(CatalogReply::default())
    }

    async fn call(&self, _cx: Cx, request: BackendCall) -> Result<ToolResult> {
        let Self(_bomb) = self;
        Ok(ToolResult::text(request.name))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}
