//! `conjure plugin create`: a crate of its own, or a directory in another language.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use conjure_core::context::quoted_word;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_create_python;
use super::plugin_sdk::{bundled_sdk, named_sdk};

/// Makes a crate outside any workspace that builds with `cargo build`; with `--lang python` a directory
/// with a program that works as it is.
///
/// The SDK is the one that this program carries: its source is written into the data directory, below
/// `sdk`, so that the crate needs nothing but Rust and crates.io. `--sdk` names another one: a path to a
/// checkout's `skill-sdk`, or a version.
#[derive(clap::Args)]
#[command(after_help = example())]
pub(crate) struct PluginCreateArgs {
    /// What the plugin exports
    kind: TemplateKind,
    /// The language: `rust` for a library, `python` for a program
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    lang: Language,
    /// The name of the plugin: lower-case letters, digits and hyphens
    name: String,
    /// The SDK: a path, or a version
    #[arg(long, value_name = "PATH|VERSION")]
    sdk: Option<String>,
    /// The directory to make the plugin in [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

/// Crates that a new one depends on, directly or by the SDK, so that it cannot be called so.
const DEPENDENCIES: [&str; 7] = [
    "conjure-abi",
    "conjure-skill-macros",
    "conjure-skill-sdk",
    "schemars",
    "serde",
    "serde-json",
    "tokio",
];

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// A library
    Rust,
    /// A program, which runs in a process of its own
    Python,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum TemplateKind {
    /// A native skill
    Skill,
    /// An executor: runs commands, keeps files
    Executor,
    /// A backend: offers tools of its own
    Backend,
}

pub(crate) fn run(global: &Global, args: &PluginCreateArgs) -> Result<Exit, CliError> {
    check_name(&args.name)?;
    let dir = args
        .path
        .clone()
        .unwrap_or_else(|| PathBuf::from(&args.name));
    if conjure_config::fs::entries(&dir).is_ok_and(|entries| !entries.is_empty()) {
        let message = format!("`{}` is there already and not empty", dir.display());
        return Err(CliError::usage(message).hint("name another place with `--path`"));
    }
    if args.lang == Language::Python {
        return match &args.sdk {
            None => plugin_create_python::run(global, args.kind, &args.name, &dir),
            Some(_) => Err(CliError::usage(
                "`--sdk` names the SDK of Rust; that of Python is one file, which is copied",
            )),
        };
    }
    if DEPENDENCIES.contains(&args.name.as_str()) {
        let message = format!("`{}` is a crate that the plugin stands on", args.name);
        return Err(CliError::usage(message).hint("choose another name"));
    }
    let sdk = match args.sdk.as_deref() {
        Some(given) => named_sdk(given)?,
        None => bundled_sdk(&global.data_dir())?,
    };
    let (source, features) = match args.kind {
        TemplateKind::Skill => (SKILL, ""),
        TemplateKind::Executor => (EXECUTOR, ", features = [\"async\"]"),
        TemplateKind::Backend => (BACKEND, ", features = [\"async\"]"),
    };
    let title = title(&args.name);
    let more = match args.kind {
        TemplateKind::Skill => {
            "schemars = \"1\"\nserde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\n"
        }
        TemplateKind::Executor | TemplateKind::Backend => "serde_json = \"1\"\n",
    };
    let fill = |text: &str| {
        text.replace("{{name}}", &args.name)
            .replace("{{title}}", &title)
            .replace("{{sdk}}", &sdk)
            .replace("{{features}}", features)
            .replace("{{more}}", more)
    };
    let files = [
        ("Cargo.toml", fill(CARGO)),
        ("src/lib.rs", fill(source)),
        (".gitignore", "/target\n".to_owned()),
    ];
    for (name, text) in &files {
        let path = dir.join(name);
        let written = conjure_config::fs::create_dir_all(path.parent().unwrap_or(&dir))
            .and_then(|()| conjure_config::fs::write(&path, text));
        written.map_err(CliError::host_from)?;
    }
    let library = library(&args.name);
    if global.json {
        output::json(&json!({
            "path": dir, "name": args.name, "sdk": sdk, "library": dir.join(&library),
        }));
    } else {
        output::line(format_args!("Made {}.", display_path(&dir)));
        output::line(format_args!("\n  cd {} && cargo build", shell_word(&dir)));
        output::line(format_args!("  conjure plugin check {library}"));
        match args.kind {
            TemplateKind::Skill => output::line(format_args!(
                "  conjure call {}_greet --args '{{\"name\": \"Ada\"}}' --plugin {library}",
                args.name
            )),
            TemplateKind::Executor => output::line(format_args!(
                "  conjure routes --executor {} --plugin {library}",
                args.name
            )),
            TemplateKind::Backend => output::line(format_args!(
                "  conjure call {0}_echo --executor {0} --args '{{\"text\": \"hi\"}}' --plugin {library}",
                args.name
            )),
        }
    }
    Ok(Exit::Success)
}

fn example() -> String {
    format!(
        "Example:
  conjure plugin create skill my-skill
  cd my-skill && cargo build
  conjure call my-skill_greet --args '{{\"name\": \"Ada\"}}' --plugin {}",
        library("my-skill")
    )
}

/// Where `cargo build` puts the library, as this system calls it.
fn library(name: &str) -> String {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    format!(
        "target/debug/{DLL_PREFIX}{}{DLL_SUFFIX}",
        name.replace('-', "_")
    )
}

/// A path as a shell reads it in a command.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = display_path(path);
    // What begins with a hyphen would be an option.
    match text.starts_with('-') {
        true => quoted_word(&format!("./{text}")),
        false => quoted_word(&text),
    }
}

fn check_name(name: &str) -> Result<(), CliError> {
    let fits = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && !name.contains("--")
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "`{name}` is not a name for a plugin: 1 to 64 lower-case letters, digits and single \
         hyphens, a letter first"
    )))
}

pub(crate) fn title(name: &str) -> String {
    let mut title = name.replace('-', " ");
    if let Some(first) = title.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    title
}

const CARGO: &str = r#"[package]
name = "{{name}}"
version = "0.1.0"
edition = "2021"
publish = false

[workspace]

[lib]
crate-type = ["cdylib"]

[dependencies]
conjure-skill-sdk = { {{sdk}}{{features}} }
{{more}}
[dev-dependencies]
conjure-skill-sdk = { {{sdk}}, features = ["testkit"] }

# The loop of editing and trying should be short.
[profile.dev]
debug = "line-tables-only"

# A panic that unwinds is an error of its call, by the SDK. A host runs what would abort in a process of
# its own, which ends with it.
[profile.release]
panic = "unwind"
opt-level = 3
lto = "thin"
codegen-units = 1
strip = true
"#;

const SKILL: &str = r#"//! {{title}}: a native skill for Conjure.

use conjure_skill_sdk::protocol::{Execute, Read};
use conjure_skill_sdk::{export_skill, Skill, ToolOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// Arguments of `greet`; its schema is what the model sees.
#[derive(Deserialize, JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
}

/// Runs once a session: what is made here is that session's state.
fn skill() -> Skill {
    let greeted = Arc::new(Mutex::new(Vec::<String>::new()));
    let (greet, forget) = (Arc::clone(&greeted), Arc::clone(&greeted));
    Skill::new("{{name}}", "Greets people and remembers whom")
        .tool_with(
            "greet",
            "Greets somebody",
            ToolOptions::new().read_only(),
            move |_cx, arguments: Greet| {
                let mut greeted = greet.lock().map_err(|_| "the list is broken")?;
                greeted.push(arguments.name.clone());
                Ok::<_, &str>(format!("Hello, {}!", arguments.name))
            },
        )
        .execute("forget", move |_cx, request: Execute| match request.command.trim() {
            "forget" => {
                forget.lock().map_err(|_| "the list is broken".to_owned())?.clear();
                Ok("Forgot everybody.".to_owned())
            }
            other => Err(format!("`{other}` is not a command; there is: forget")),
        })
        .read("greeted: who was greeted so far", move |_cx, _request: Read| {
            let greeted = greeted.lock().map_err(|_| "the list is broken")?;
            Ok::<_, &str>(greeted.join("\n"))
        })
        // `conjure plugin test` runs these.
        .example("greet", json!({ "name": "Ada" }), "Hello, Ada!")
        .failing_example("execute", json!({ "command": "sing" }), "there is: forget")
}

export_skill!(skill);

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::testkit::TestHost;
    use conjure_skill_sdk::Result;
    use serde_json::json;

    use super::skill;

    #[test]
    fn who_was_greeted_is_remembered_until_it_is_forgotten() -> Result<()> {
        let host = TestHost::new()?;
        let plugin = host.link(skill)?;
        let greeted = plugin.call("skill.tool.greet", json!({ "name": "Ada" }));
        assert_eq!(greeted.text(), "Hello, Ada!");
        let read = || plugin.call("skill.read", json!({ "path": "greeted" })).text();
        assert_eq!(read(), "Ada");
        plugin.call("skill.execute", json!({ "command": "forget" }));
        assert_eq!(read(), "");
        Ok(())
    }
}
"#;

/// In a file of its own, since it is a whole machine.
const EXECUTOR: &str = include_str!("../templates/executor.rs.in");

const BACKEND: &str = r##"//! {{title}}: a backend for Conjure.

use conjure_skill_sdk::protocol::{BackendCall, CatalogReply, Open, ToolDecl, ToolResult};
use conjure_skill_sdk::{export_backend, Backend, BackendPlugin, Cx, Error, Result};
use serde_json::json;

struct Echo;

impl Backend for Echo {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let schema = json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "What to say" } },
            "required": ["text"],
        });
        let echo = ToolDecl::new("echo", "Says what it is told", schema);
        Ok(CatalogReply { tools: vec![echo], ..CatalogReply::default() })
    }

    async fn call(&self, _cx: Cx, request: BackendCall) -> Result<ToolResult> {
        match request.name.as_str() {
            "echo" => {
                let text = request.arguments["text"].as_str();
                let text = text.ok_or_else(|| Error::invalid("`text` is missing: say what to echo"))?;
                Ok(ToolResult::text(text))
            }
            other => Err(Error::not_found(format!("there is no tool `{other}`"))),
        }
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

fn backend() -> BackendPlugin<Echo> {
    BackendPlugin::new("{{name}}", "Says what it is told", |_setup| Ok(Echo))
        .example("echo", json!({ "text": "hi" }), "hi")
}

export_backend!(backend);

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::testkit::TestHost;
    use conjure_skill_sdk::Result;
    use serde_json::json;

    use super::backend;

    #[test]
    fn it_says_what_it_is_told() -> Result<()> {
        let host = TestHost::new()?;
        let plugin = host.link(backend)?;
        let echo = |arguments| {
            let call = json!({ "name": "echo", "arguments": arguments });
            plugin.call("backend.call", call)
        };
        assert_eq!(echo(json!({ "text": "hi" })).text(), "hi");
        assert!(echo(json!({})).reply.is_err());
        Ok(())
    }
}
"##;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_has_the_name_that_this_system_gives_it() {
        let extension = std::env::consts::DLL_EXTENSION;
        let expected = format!("target/debug/libmy_skill.{extension}");
        assert_eq!(library("my-skill"), expected);
    }

    #[test]
    fn what_is_to_be_typed_is_one_word_for_a_shell() {
        for (path, word) in [
            ("my-skill", "my-skill"),
            ("/a/b.c", "/a/b.c"),
            ("my skills/one", "'my skills/one'"),
            ("it's", "'it'\\''s'"),
            ("$HOME;x", "'$HOME;x'"),
            ("~", "'~'"),
            ("-x", "./-x"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
