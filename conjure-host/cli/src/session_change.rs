//! `conjure session create | set | check | new-chat | use | fork | delete`.

use std::path::{Path, PathBuf};

use conjure_config::{PolicySpec, SessionSpec};
use conjure_core::switch::describe;
use conjure_core::turn::EffectiveFrom;
use conjure_runtime::manager::{
    ChatRetention, NewSession, PersonaCopy, SessionPatch, SessionView, ThreadChoice,
};
use serde_json::{Map, Value, json};

use super::args::{Global, current_dir, warn_weak_rules};
use super::entry_at;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, clean, line, print_note};
use super::person::confirm;
use super::persona;
use super::plugin_args::PluginArgs;
use super::session_show::print;
use super::sessions::SavedSessions;
use super::thread::id;

/// The settings of a session.
#[derive(clap::Args, Default)]
struct SessionSettingsArgs {
    /// The working directory of calls [default of `create`: the current directory]
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,
    /// The persona (who the model is to be): the text, or `@FILE`
    #[arg(long, value_name = "TEXT")]
    persona: Option<String>,
    /// The persona's name; without `--persona` the saved one of that name, or NAME@VERSION
    /// (`conjure persona list`)
    #[arg(long, value_name = "NAME")]
    persona_name: Option<String>,
    /// The memory of the session: a JSON object, any text, or `@FILE` with one of the two
    #[arg(long, value_name = "TEXT")]
    memory: Option<String>,
    /// The backends, names, policy, budgets and limits of the session: a session file (TOML) without
    /// provider, auth, model, persona and working directory
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// The MCP servers of the session: a JSON object of settings by name, or `@FILE` with one
    #[arg(long, value_name = "JSON")]
    mcps: Option<String>,
}

/// A new session.
#[derive(clap::Args)]
pub(crate) struct CreateSessionArgs {
    /// The name of the session
    name: Option<String>,
    /// The saved auth: NAME, or PROVIDER/KIND/NAME (`conjure auth list`)
    #[arg(long, value_name = "NAME")]
    auth: String,
    /// The model, as the provider names it
    #[arg(long, value_name = "NAME")]
    model: String,
    #[command(flatten)]
    settings: SessionSettingsArgs,
    /// Go on with this thread
    #[arg(long, value_name = "ID", conflicts_with = "fork")]
    thread: Option<String>,
    /// Go on with a fork of this thread
    #[arg(long, value_name = "ID")]
    fork: Option<String>,
    /// The last entry that the fork shows: its number, as `conjure thread show` has it, or a piece
    /// of text that only it has [default: the newest]
    #[arg(
        long,
        value_name = "ENTRY",
        requires = "fork",
        conflicts_with = "thread"
    )]
    at: Option<String>,
}

/// A session that changes.
#[derive(clap::Args)]
pub(crate) struct Set {
    /// The session: its name or its id
    session: String,
    /// The new name; an empty one takes the name away
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The saved auth
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,
    /// The model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    settings: SessionSettingsArgs,
    /// While a turn runs: stop the stream and ask again with the new settings
    #[arg(long)]
    now: bool,
}

/// A change that is only looked at.
#[derive(clap::Args)]
pub(crate) struct CheckSessionArgs {
    /// The session: its name or its id
    session: String,
    /// The saved auth
    #[arg(long, value_name = "NAME")]
    auth: Option<String>,
    /// The model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    pub(crate) plugins: PluginArgs,
}

/// A fork to go on with.
#[derive(clap::Args)]
pub(crate) struct ForkSessionArgs {
    /// The session: its name or its id
    session: String,
    /// The thread [default: the session's]
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// The last entry that the fork shows: its number, as `conjure thread show` has it, or a piece
    /// of text that only it has [default: the newest]
    #[arg(long, value_name = "ENTRY")]
    at: Option<String>,
}

/// A session that goes.
#[derive(clap::Args)]
pub(crate) struct Delete {
    /// The session: its name or its id
    session: String,
    /// Delete its thread too, for good
    #[arg(long)]
    with_chat: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn create(
    global: &Global,
    sessions: &SavedSessions,
    args: CreateSessionArgs,
) -> Result<Exit, CliError> {
    let patch = args.settings.patch(sessions).await?;
    let thread = match (&args.thread, &args.fork) {
        (Some(thread), _) => ThreadChoice::Existing {
            thread: id(thread)?,
        },
        (None, Some(thread)) => {
            let thread = id(thread)?;
            let store = sessions.manager().store();
            let upto = entry_at::resolve(store, &thread, args.at.as_deref()).await?;
            ThreadChoice::Fork { thread, upto }
        }
        (None, None) => ThreadChoice::New,
    };
    let working_dir = match patch.working_dir {
        Some(dir) => dir,
        None => current_dir()?,
    };
    let new = NewSession {
        name: args.name,
        thread,
        persona: patch.persona.unwrap_or_default(),
        memory: patch.memory.unwrap_or_default(),
        tools: patch.tools.unwrap_or_default(),
        mcps: patch.mcps.unwrap_or_default(),
        ..NewSession::new(args.auth, args.model, working_dir)
    };
    let view = sessions.manager().create(new).await?;
    report_session(global, &view);
    Ok(Exit::Success)
}

pub(crate) async fn set(
    global: &Global,
    sessions: &SavedSessions,
    args: Set,
) -> Result<Exit, CliError> {
    let patch = SessionPatch {
        name: args.name,
        auth: args.auth,
        model: args.model,
        ..args.settings.patch(sessions).await?
    };
    if patch == SessionPatch::default() {
        return Err(CliError::usage("nothing is to change").hint("`--help` shows what can"));
    }
    let when = if args.now {
        EffectiveFrom::Now
    } else {
        EffectiveFrom::NextTurn
    };
    let view = sessions.update(&args.session, patch, when).await?;
    report_session(global, &view);
    Ok(Exit::Success)
}

pub(crate) async fn check(
    global: &Global,
    sessions: &SavedSessions,
    args: &CheckSessionArgs,
) -> Result<Exit, CliError> {
    let patch = SessionPatch {
        auth: args.auth.clone(),
        model: args.model.clone(),
        ..SessionPatch::default()
    };
    let report = sessions.manager().check(&args.session, &patch).await?;
    if global.json {
        output::json(&report);
    } else {
        for said in describe(&report, None) {
            line(clean(&said));
        }
    }
    Ok(Exit::Success)
}

pub(crate) async fn new_chat(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
) -> Result<Exit, CliError> {
    let view = sessions.manager().start_thread(session).await?;
    report_session(global, &view);
    Ok(Exit::Success)
}

pub(crate) async fn choose(
    global: &Global,
    sessions: &SavedSessions,
    session: &str,
    thread: &str,
) -> Result<Exit, CliError> {
    let view = sessions
        .manager()
        .choose_thread(session, &id(thread)?)
        .await?;
    report_session(global, &view);
    Ok(Exit::Success)
}

pub(crate) async fn fork(
    global: &Global,
    sessions: &SavedSessions,
    args: &ForkSessionArgs,
) -> Result<Exit, CliError> {
    let manager = sessions.manager();
    let thread = match &args.thread {
        Some(thread) => id(thread)?,
        None => {
            let view = manager.get(&args.session).await?;
            let thread = view.thread.map(|thread| thread.id);
            thread.ok_or_else(|| {
                CliError::usage("the session has no thread").hint("name one with `--thread ID`")
            })?
        }
    };
    let at = entry_at::resolve(manager.store(), &thread, args.at.as_deref()).await?;
    let view = manager.fork_thread(&args.session, &thread, at).await?;
    report_session(global, &view);
    Ok(Exit::Success)
}

pub(crate) async fn delete(
    global: &Global,
    sessions: &SavedSessions,
    args: &Delete,
) -> Result<Exit, CliError> {
    let view = sessions.manager().get(&args.session).await?;
    let what = if args.with_chat {
        "the session and its thread, for good"
    } else {
        "the session; its threads stay"
    };
    let name = clean(view.name.as_deref().unwrap_or(&view.id));
    let what = format!("This deletes {what}: {name}");
    if !confirm(args.yes, what, "Delete it?").await? {
        return Ok(Exit::Interrupted);
    }
    let chat = if args.with_chat {
        ChatRetention::Delete
    } else {
        ChatRetention::Keep
    };
    sessions.delete(&view.id, chat).await?;
    if global.json {
        output::json(&json!({ "deleted": view.id, "chat": chat }));
    } else {
        print_note("It is gone.");
    }
    Ok(Exit::Success)
}

fn report_session(global: &Global, view: &SessionView) {
    if global.json {
        output::json(view);
    } else {
        print(view);
    }
}

impl SessionSettingsArgs {
    async fn patch(self, sessions: &SavedSessions) -> Result<SessionPatch, CliError> {
        let persona = match (self.persona, self.persona_name) {
            (Some(text), name) => Some(PersonaCopy {
                name: name.unwrap_or_default(),
                version: String::new(),
                persona_text: text_of(&text)?,
            }),
            (None, Some(name)) => {
                let saved = persona::find(sessions.manager().store(), &name).await?;
                Some(PersonaCopy {
                    name: saved.name,
                    version: saved.version,
                    persona_text: saved.persona_text,
                })
            }
            (None, None) => None,
        };
        let memory = match self.memory {
            Some(text) => Some(memory(&text_of(&text)?)),
            None => None,
        };
        let tools = match &self.tools {
            Some(file) => Some(tools(file)?),
            None => None,
        };
        if let Some(tools) = &tools {
            warn_weak_rules(&PolicySpec::of_settings(tools));
        }
        let mcps = match self.mcps {
            Some(text) => Some(object(&text_of(&text)?, "--mcps")?),
            None => None,
        };
        let working_dir = match self.working_dir {
            Some(dir) => Some(current_dir()?.join(dir)),
            None => None,
        };
        Ok(SessionPatch {
            working_dir,
            persona,
            memory,
            tools,
            mcps,
            ..SessionPatch::default()
        })
    }
}

/// A text, or what is in the file `@FILE`.
pub(super) fn text_of(text: &str) -> Result<String, CliError> {
    match text.strip_prefix('@') {
        Some(file) => {
            conjure_config::fs::read_to_string(Path::new(file)).map_err(CliError::usage_from)
        }
        None => Ok(text.to_owned()),
    }
}

/// A JSON object; any other text is remembered as prose.
pub(super) fn memory(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(memory)) => memory,
        _ => Map::from_iter([("memory_text".to_owned(), text.into())]),
    }
}

fn object(text: &str, option: &str) -> Result<Map<String, Value>, CliError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(CliError::usage(format!("`{option}` wants a JSON object"))),
        Err(error) => {
            Err(CliError::usage_from(error).context(format_args!("`{option}` wants a JSON object")))
        }
    }
}

/// What a session file says, with its paths made absolute, and without what it leaves open.
pub(crate) fn tools(file: &Path) -> Result<Map<String, Value>, CliError> {
    let spec = SessionSpec::read(&current_dir()?.join(file))?;
    let all = serde_json::to_value(&spec).unwrap_or_default();
    let usual = serde_json::to_value(SessionSpec::default()).unwrap_or_default();
    let said = all.as_object().into_iter().flatten();
    let said = said.filter(|(field, value)| usual.get(*field) != Some(*value));
    Ok(said
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect())
}
