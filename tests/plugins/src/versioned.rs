//! Plugins of several versions, which say which one they are.

use crate::Plugin;
use crate::build::target;

/// A backend that counts a session's calls, hands the count on, and notes in the session's directory
/// what happens to it. One that finds `refuse-VERSION` there does not open. It asks for something, since
/// a backend that asks for nothing does not reach the session's directory in a worker.
const COUNTING_BACKEND: &str = r#"
use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Open, Permissions, State, ToolDecl, ToolResult,
};
use conjure_skill_sdk::{export_backend, Backend, BackendPlugin, Cx, Error, Result, Upgrade};
use serde_json::{json, Value};

#[derive(Default)]
struct Keeper {
    counts: Mutex<HashMap<String, u64>>,
}

fn note(cx: &Cx, what: &str) {
    let path = cx.working_dir().unwrap().join("log.txt");
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    // In one piece, since others write there as well.
    let line = format!("{what} {}\n", env!("CARGO_PKG_VERSION"));
    log.write_all(line.as_bytes()).unwrap();
}

fn there(cx: &Cx, name: &str) -> bool {
    cx.working_dir().unwrap().join(name).exists()
}

impl Backend for Keeper {
    async fn open(&self, cx: Cx, request: Open) -> Result<()> {
        if there(&cx, concat!("refuse-", env!("CARGO_PKG_VERSION"))) {
            return Err(Error::new("it does not want to"));
        }
        if there(&cx, concat!("slow-", env!("CARGO_PKG_VERSION"))) {
            note(&cx, "opening");
            while !there(&cx, "go-on") {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        note(&cx, "open");
        let from = request.options["from"].as_u64().unwrap_or_default();
        let session = cx.session().unwrap_or_default().to_owned();
        self.counts.lock().unwrap().insert(session, from);
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let tool = |name: &str| ToolDecl::new(name, "Counts", json!({ "type": "object" }));
        Ok(CatalogReply { tools: vec![tool("count"), tool("slow")], ..CatalogReply::default() })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        if request.name == "slow" {
            note(&cx, "slow");
            while !there(&cx, "go-on") {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        let mut counts = self.counts.lock().unwrap();
        let session = cx.session().unwrap_or_default().to_owned();
        let Some(count) = counts.get_mut(&session) else {
            return Err(Error::new("the session is not open"));
        };
        *count += 1;
        Ok(ToolResult::text(format!("{}: {count}", env!("CARGO_PKG_VERSION"))))
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        note(&cx, "close");
        let session = cx.session().unwrap_or_default().to_owned();
        self.counts.lock().unwrap().remove(&session);
        Ok(())
    }
}

impl Upgrade for Keeper {
    async fn export(&self, cx: Cx) -> Result<Value> {
        let counts = self.counts.lock().unwrap();
        Ok(json!(counts.get(cx.session().unwrap_or_default())))
    }

    async fn import(&self, cx: Cx, state: State) -> Result<()> {
        if there(&cx, "refuse-state") {
            return Err(Error::new("it cannot read that"));
        }
        let session = cx.session().unwrap_or_default().to_owned();
        let count = state.state.as_u64().unwrap_or_default();
        self.counts.lock().unwrap().insert(session, count);
        Ok(())
    }
}

fn plugin() -> BackendPlugin<Keeper> {
    let permissions = Permissions { read: vec!["/usr".to_owned()], ..Permissions::default() };
    BackendPlugin::new("keeper", "Counts", |_setup| Ok(Keeper::default()))
        .permissions(permissions)
        .with_upgrade()
}

export_backend!(plugin, name = "keeper");
"#;

/// An executor whose only command says which version it is.
const VERSION_EXECUTOR: &str = r#"
use conjure_skill_sdk::protocol::{Bash, BashOutput, CreateFile, StrReplace, View, Viewed, Written};
use conjure_skill_sdk::{export_executor, Cx, Error, Executor, ExecutorPlugin, Result};

struct Teller;

impl Executor for Teller {
    async fn bash(&self, _cx: Cx, _request: Bash) -> Result<BashOutput> {
        Ok(BashOutput {
            exit_code: Some(0),
            stdout: env!("CARGO_PKG_VERSION").to_owned(),
            ..BashOutput::default()
        })
    }

    async fn view(&self, _cx: Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("nothing"))
    }

    async fn create_file(&self, _cx: Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("nothing"))
    }

    async fn str_replace(&self, _cx: Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("nothing"))
    }
}

fn plugin() -> ExecutorPlugin<Teller> {
    ExecutorPlugin::new("teller", "Says which version it is", |_setup| Ok(Teller))
}

export_executor!(plugin, name = "teller");
"#;

/// A skill that counts its calls, and hands the count on. The version 0.1.0 asks for connections of its
/// own.
const COUNTER: &str = r#"
use std::sync::{Arc, Mutex};

use conjure_skill_sdk::protocol::{Execute, Permissions};
use conjure_skill_sdk::{export_skill, Skill};
use serde_json::json;

fn skill() -> Skill {
    let permissions = Permissions {
        network: env!("CARGO_PKG_VERSION") == "0.1.0",
        ..Permissions::default()
    };
    let count = Arc::new(Mutex::new(0_u64));
    let (exported, imported) = (Arc::clone(&count), Arc::clone(&count));
    Skill::new("counter", "Counts")
        .permissions(permissions)
        .execute("any command", move |_cx, _c: Execute| {
            let mut count = count.lock().unwrap();
            *count += 1;
            format!("{}: {count}", env!("CARGO_PKG_VERSION"))
        })
        .upgrade(
            move |_cx| Ok(json!(*exported.lock().unwrap())),
            move |_cx, state| {
                *imported.lock().unwrap() = state.state.as_u64().unwrap_or_default();
                Ok(())
            },
        )
}

export_skill!(skill, name = "counter");
"#;

/// A skill whose library makes the file that `CONJURE_TOUCH` names when it is opened. Versions after 0.1
/// describe their tool otherwise, and each says of itself what `CONJURE_SAYS` says.
const TOUCHING_SKILL: &str = r#"
use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{export_skill, Skill};

fn skill() -> Skill {
    let words = match env!("CARGO_PKG_VERSION_MINOR") {
        "1" => "any command",
        _ => "any command, whatever was said before",
    };
    let about = std::env::var("CONJURE_SAYS").unwrap_or("Touches".to_string());
    Skill::new("toucher", about)
        .execute(words, |_cx, _c: Execute| env!("CARGO_PKG_VERSION").to_string())
}

export_skill!(skill, name = "toucher");

extern "C" fn constructor() {
    if let Some(path) = std::env::var_os("CONJURE_TOUCH") {
        std::fs::write(path, "").unwrap();
    }
}

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = constructor;
"#;

/// The library of the plugin `keeper`, `teller`, `toucher` or `counter` in this version.
pub fn versioned(name: &str, version: &str) -> Vec<u8> {
    let source = match name {
        "keeper" => COUNTING_BACKEND,
        "teller" => VERSION_EXECUTOR,
        "toucher" => TOUCHING_SKILL,
        _ => COUNTER,
    };
    let package = format!("{name}-{}", version.replace('.', "-"));
    let plugin = Plugin {
        version,
        features: if ["counter", "toucher"].contains(&name) {
            &[]
        } else {
            &["async"]
        },
        dir: Some(target().join("crates").join(&package)),
        ..Plugin::new(&package, source)
    };
    std::fs::read(plugin.build()).unwrap()
}
