//! The commands of a conversation, the same ones in every kind of chat.

use conjure_core::numerals::thousands;
use conjure_core::switch::describe;
use conjure_core::turn::EffectiveFrom;
use conjure_runtime::artifacts::Artifact;
use conjure_runtime::manager::SessionPatch;
use conjure_runtime::session::SessionSettings;
use conjure_terminal::Command;

use super::chat_session::{ChatSession, SavedChat};
use super::error::CliError;
use super::exit::Exit;
use super::output::{DIM, RESET, YELLOW, clean, print_note};
use super::transcript::Transcript;
use super::{cost_text, entry_at, files, routes, session_show};

/// Every command, in the order in which `/help` tells them.
pub(crate) const COMMANDS: [Command; 16] = [
    command("/session", "", "the settings, and what it came to"),
    command("/tools", "", "the routing table"),
    command("/files", "", "the files made so far"),
    command("/save", "FILE [DIR]", "a copy of one of them"),
    command(
        "/model",
        "[PROVIDER/MODEL]",
        "go on with another model, of any provider; at a terminal alone it lists them",
    ),
    command(
        "/auth",
        "NAME MODEL",
        "go on with another saved auth and model",
    ),
    command(
        "/check",
        "PROVIDER/MODEL",
        "what that model would get of this conversation",
    ),
    command("/cost", "", "what it cost so far"),
    command(
        "/compact",
        "",
        "put a summary in place of the older part, as far as the model reads it",
    ),
    command(
        "/unfold",
        "[ENTRY]",
        "let the model read again what a summary hides",
    ),
    command(
        "/new",
        "",
        "go on with a fresh thread; the one before stays",
    ),
    command(
        "/fork",
        "[ENTRY]",
        "go on with a fork of this thread, behind an entry (its number, or text of it); at a terminal \
         alone it lists what you said",
    ),
    command(
        "/resume",
        "[ID or WORDS]",
        "go on with another thread; at a terminal alone it lists them, with words those that have them",
    ),
    command("/rename", "NAME", "name the thread"),
    command("/help", "", "this"),
    command("/quit", "", "end the conversation (or Ctrl-D)"),
];

const fn command(name: &'static str, arguments: &'static str, help: &'static str) -> Command {
    Command {
        name,
        arguments,
        help,
    }
}

/// The commands with what each does.
pub(crate) fn help() -> String {
    let mut lines: Vec<String> = COMMANDS
        .iter()
        .map(|command| {
            let head = format!("{} {}", command.name, command.arguments);
            format!("{:<23} {}", head.trim_end(), command.help)
        })
        .collect();
    lines.push(
        "Ctrl-C                  end the turn that runs; what came so far is kept".to_owned(),
    );
    lines.join("\n")
}

/// Runs one of them: a line that begins with a slash.
///
/// # Errors
/// What stood in the way; the conversation goes on.
pub(crate) async fn run(
    chat: &mut ChatSession,
    line: &str,
    transcript: &mut Transcript,
) -> Result<(), CliError> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, rest.trim()) {
        ("/session", "") => session(chat).await,
        ("/tools", "") => tools(chat).await,
        ("/files", "") => {
            transcript.files(&chat.files().await?);
            Ok(())
        }
        ("/save", wanted) => save(chat, wanted).await,
        ("/model", wanted) => change_model(chat, wanted).await,
        ("/auth", wanted) => change_auth(chat, wanted).await,
        ("/check", wanted) => check_model(chat, wanted).await,
        ("/cost", "") => {
            let spent = cost_text::line(&chat.cost().await?);
            print_note(spent.as_deref().unwrap_or("Nothing was spent yet."));
            Ok(())
        }
        ("/compact", "") => compact(chat).await,
        ("/unfold", fold) => unfold(chat, fold).await,
        ("/new", "") => {
            chat.start_thread().await?;
            print_note(format_args!(
                "{DIM}A fresh thread. The one before stays.{RESET}"
            ));
            Ok(())
        }
        ("/fork", at) => fork(chat, at).await,
        ("/resume", thread) if !thread.is_empty() => {
            chat.go_to(super::thread::id(thread)?).await?;
            print_note(format_args!("{DIM}Now that thread goes on.{RESET}"));
            Ok(())
        }
        ("/rename", name) => rename(chat, name).await,
        ("/help", "") => {
            print_note(help());
            Ok(())
        }
        _ => {
            print_note(format_args!("There is no {}.\n{}", clean(line), help()));
            Ok(())
        }
    }
}

async fn session(chat: &ChatSession) -> Result<(), CliError> {
    match chat {
        ChatSession::Own(own) => {
            let row =
                |what: &str, value: &str| print_note(format_args!("  {what:<12}{}", clean(value)));
            row("thread", own.session.thread().as_str());
            row("provider", own.spec.provider.as_deref().unwrap_or("none"));
            row("model", own.spec.model.as_deref().unwrap_or("none"));
            if let Some(dir) = &own.spec.working_dir {
                row("works in", &super::args::display_path(dir));
            }
        }
        ChatSession::Saved(saved) => {
            session_show::print(&saved.sessions.manager().get(&saved.id).await?);
        }
    }
    Ok(())
}

async fn tools(chat: &ChatSession) -> Result<(), CliError> {
    let preview = match chat {
        ChatSession::Own(own) => own.session.tool_preview().await,
        ChatSession::Saved(saved) => Some(saved.sessions.manager().tools(&saved.id).await?),
    };
    if let Some(preview) = preview {
        routes::print(&preview);
    }
    Ok(())
}

/// What a compaction came to.
pub(crate) fn describe_compaction((fold, tokens): (u64, u64)) -> String {
    format!(
        "Compaction {fold} stands for the older part: the model reads about {} tokens of this \
         conversation now. `/unfold`, or `conjure thread unfold`, takes it back.",
        thousands(tokens)
    )
}

async fn compact(chat: &ChatSession) -> Result<(), CliError> {
    let compacted = match chat {
        ChatSession::Own(own) => {
            let compacted = own.session.compact().await;
            compacted.map_err(|error| CliError::from_source(Exit::No, error))?
        }
        ChatSession::Saved(saved) => {
            let thread = chat.thread().await?;
            let manager = saved.sessions.manager();
            manager.compact(&thread, Some(&saved.id)).await?
        }
    };
    print_note(describe_compaction(compacted));
    Ok(())
}

async fn unfold(chat: &ChatSession, fold: &str) -> Result<(), CliError> {
    let fold = match fold {
        "" => None,
        fold => match fold.parse() {
            Ok(fold) => Some(fold),
            Err(_) => {
                print_note("Write `/unfold`, or `/unfold ENTRY` with a compaction's entry.");
                return Ok(());
            }
        },
    };
    let (_, tokens) = match chat {
        ChatSession::Own(own) => {
            let unfolded = own.session.unfold(fold).await;
            unfolded.map_err(|error| CliError::from_source(Exit::No, error))?
        }
        ChatSession::Saved(saved) => {
            let thread = chat.thread().await?;
            saved.sessions.manager().unfold(&thread, fold).await?
        }
    };
    print_note(format_args!(
        "{DIM}The next request has about {} tokens of this conversation.{RESET}",
        thousands(tokens)
    ));
    Ok(())
}

/// The provider and the model of `PROVIDER/MODEL`; the model's own name may have slashes too.
pub(crate) fn split_provider_model(wanted: &str) -> Option<(&str, &str)> {
    let (provider, model) = wanted.split_once('/')?;
    (!provider.is_empty() && !model.is_empty()).then_some((provider, model))
}

/// Goes on with another model.
async fn change_model(chat: &mut ChatSession, wanted: &str) -> Result<(), CliError> {
    let Some((provider, model)) = split_provider_model(wanted) else {
        print_note("Write `/model PROVIDER/MODEL`, such as `/model openai/gpt-5`.");
        return Ok(());
    };
    let changed = match chat {
        ChatSession::Own(own) => own.change_model(provider, model).await,
        ChatSession::Saved(saved) => match patch(saved, provider, model).await {
            Ok(patch) => {
                let changed = saved
                    .sessions
                    .update(&saved.id, patch, EffectiveFrom::Now)
                    .await;
                changed.map(drop)
            }
            Err(error) => Err(error),
        },
    };
    changed.map_err(|error| error.context("nothing changes"))?;
    print_note(format_args!("{DIM}Now {} answers.{RESET}", clean(wanted)));
    Ok(())
}

/// What changes in a saved session so that this model answers: its auth too, where the provider is
/// another one.
async fn patch(saved: &SavedChat, provider: &str, model: &str) -> Result<SessionPatch, CliError> {
    let view = saved.sessions.manager().get(&saved.id).await?;
    let mut patch = SessionPatch {
        model: Some(model.to_owned()),
        ..SessionPatch::default()
    };
    if view.auth.provider != provider {
        let auths = saved.auths.list().await?;
        let auth = auths.into_iter().find(|auth| auth.provider == provider);
        let Some(auth) = auth else {
            let error = CliError::usage(format!("there is no saved auth for `{provider}`"));
            return Err(error.hint("`conjure auth create` saves one"));
        };
        patch.auth = Some(auth.id);
    }
    Ok(patch)
}

async fn change_auth(chat: &mut ChatSession, wanted: &str) -> Result<(), CliError> {
    let words: Vec<&str> = wanted.split_whitespace().collect();
    let [auth, model] = words.as_slice() else {
        print_note("Write `/auth NAME MODEL`: a saved auth and a model of its provider.");
        return Ok(());
    };
    let answers = match chat {
        ChatSession::Own(own) => {
            own.change_auth(auth, model).await?;
            (*model).to_owned()
        }
        ChatSession::Saved(saved) => {
            let patch = SessionPatch {
                auth: Some((*auth).to_owned()),
                model: Some((*model).to_owned()),
                ..SessionPatch::default()
            };
            let view = saved
                .sessions
                .update(&saved.id, patch, EffectiveFrom::Now)
                .await?;
            view.model
        }
    };
    print_note(format_args!("{DIM}Now {} answers.{RESET}", clean(&answers)));
    Ok(())
}

/// Says what that model would get.
async fn check_model(chat: &ChatSession, wanted: &str) -> Result<(), CliError> {
    let Some((provider, model)) = split_provider_model(wanted) else {
        print_note("Write `/check PROVIDER/MODEL`, such as `/check openai/gpt-5`.");
        return Ok(());
    };
    for said in model_check_report(chat, provider, model).await? {
        print_note(format_args!("  {}", clean(&said)));
    }
    Ok(())
}

/// What a model would get, in sentences.
pub(crate) async fn model_check_report(
    chat: &ChatSession,
    provider: &str,
    model: &str,
) -> Result<Vec<String>, CliError> {
    let report = match chat {
        ChatSession::Own(own) => {
            let settings = SessionSettings {
                provider: Some(provider.to_owned()),
                model: Some(model.to_owned()),
                ..SessionSettings::default()
            };
            own.session.check(settings).await?
        }
        ChatSession::Saved(saved) => {
            let patch = patch(saved, provider, model).await?;
            saved.sessions.manager().check(&saved.id, &patch).await?
        }
    };
    let window = chat.window(provider, model);
    Ok(describe(&report, window))
}

/// Saves a copy of a file: `FILE`, or `FILE DIR`.
async fn save(chat: &ChatSession, wanted: &str) -> Result<(), CliError> {
    let (file, dir) = wanted
        .split_once(char::is_whitespace)
        .unwrap_or((wanted, "."));
    let known: Vec<Artifact> = chat.files().await?;
    let Some(known) = files::find_file(&known, file) else {
        print_note(
            "Write `/save FILE`, or `/save FILE DIR`, with a handle or a name that `/files` shows.",
        );
        return Ok(());
    };
    let path = chat.resolve(known).await?;
    let to = files::save(known, &path, std::path::Path::new(dir.trim()), false)?;
    print_note(format_args!(
        "{DIM}saved as {}{RESET}",
        clean(&to.display().to_string())
    ));
    Ok(())
}

async fn fork(chat: &mut ChatSession, at: &str) -> Result<(), CliError> {
    let thread = chat.thread().await?;
    let at = Some(at).filter(|at| !at.is_empty());
    let at = entry_at::resolve(chat.store(), &thread, at).await?;
    chat.fork(at).await?;
    print_note(format_args!(
        "{DIM}A fork of it. Both branches stay.{RESET}"
    ));
    Ok(())
}

async fn rename(chat: &ChatSession, name: &str) -> Result<(), CliError> {
    let name = super::thread_change::parse_name(name)?;
    chat.store()
        .rename_thread(&chat.thread().await?, name)
        .await?;
    print_note(format_args!("{DIM}It is named {}.{RESET}", clean(name)));
    Ok(())
}

/// Says what stood in a command's way.
pub(crate) fn report_error(error: &CliError) {
    print_note(format_args!(
        "{YELLOW}note:{RESET} {}",
        clean(&error.to_string())
    ));
    for hint in error.hints() {
        print_note(format_args!("  {}", clean(hint)));
    }
}
