//! What a chat talks in: a session of its own, or a saved one.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_config::{AuthRef, SessionSpec};
use conjure_core::context::quoted_word;
use conjure_core::cost::TurnCost;
use conjure_core::turn::EffectiveFrom;
use conjure_providers::ModelBook;
use conjure_providers::auths::Auths;
use conjure_runtime::Host;
use conjure_runtime::artifacts::Artifact;
use conjure_runtime::manager::{Manager, TurnTerms};
use conjure_runtime::session::{
    ApprovalMode, Session, SessionError, SessionSettings, Subscription,
};
use conjure_store::{Store, ThreadId};

use super::args::{Global, SessionArgs};
use super::chat_rules;
use super::error::CliError;
use super::exit::Exit;
use super::output::{DIM, RESET, clean, print_note};
use super::past_turns;
use super::run::{existing_thread, open_host};
use super::sessions::SavedSessions;
use super::thread_feed::Following;

/// The options that are said again, each with a value: what is looked for where, and what calls may do.
const REPEATED_OPTIONS: [&str; 7] = [
    "--data-dir",
    "--plugin",
    "--plugin-dir",
    "--isolation",
    "--allow",
    "--ask",
    "--deny",
];
/// Options that are said again besides for a session of the chat's own: a saved one has them itself, and
/// takes none.
const OWN_SESSION_OPTIONS: [&str; 15] = [
    "--config",
    "-c",
    "--base-url",
    "--wire",
    "--dialect",
    "--script",
    "--set",
    "--persona",
    "--max-iterations",
    "--skill",
    "--executor",
    "--working-dir",
    "--sandbox",
    "--allow-write",
    "--allow-read",
];
/// Options like [`OWN_SESSION_OPTIONS`] that take no value.
const OWN_SESSION_FLAGS: [&str; 1] = ["--allow-network"];
/// Options for who answers: the thread knows it, and they are said again only where one of [`FILES`]
/// would choose another.
const ANSWERER: [&str; 3] = ["--provider", "--auth", "--model"];
const FILES: [&str; 3] = ["--config", "-c", "--script"];

/// What a chat talks in.
pub(crate) enum ChatSession {
    /// A session from options and a session file.
    Own(Box<OwnChat>),
    /// A saved session, here or on a server.
    Saved(Box<SavedChat>),
}

/// A session of the chat's own that is still to be opened.
pub(crate) struct PreparedChat {
    pub(crate) host: Host,
    pub(crate) store: Store,
    pub(crate) spec: SessionSpec,
    /// The thread that it goes on with; nothing for a new one.
    pub(crate) thread: Option<ThreadId>,
    is_attended: bool,
    models: Option<ModelBook>,
    auths: Auths,
}

/// A session of the chat's own.
pub(crate) struct OwnChat {
    pub(crate) host: Host,
    store: Store,
    /// What it was opened with, and what was changed since.
    pub(crate) spec: SessionSpec,
    pub(crate) session: Arc<Session>,
    pub(crate) events: Subscription,
    is_attended: bool,
    pub(crate) models: Option<ModelBook>,
    pub(crate) auths: Auths,
}

/// A saved session.
pub(crate) struct SavedChat {
    pub(crate) sessions: SavedSessions,
    pub(crate) auths: Auths,
    /// Id of the session.
    pub(crate) id: String,
    /// Name that the person calls it by.
    pub(crate) name: String,
    pub(crate) terms: TurnTerms,
    pub(crate) models: Option<ModelBook>,
    /// The events of its thread.
    pub(crate) following: Following,
    /// The thread that the person sees; nothing where that is not known.
    pub(crate) shown_thread: Option<ThreadId>,
    /// The number of the newest turn of it that is over and shown.
    pub(crate) shown_turn: u64,
}

/// Sizes and prices of models; nothing where the person's own file is not right, which other verbs
/// say.
pub(crate) fn models(global: &Global) -> Option<ModelBook> {
    ModelBook::read(&global.data_dir()).ok()
}

/// Where the commands of a session work.
pub(crate) fn directory_of(spec: &SessionSpec) -> Result<PathBuf, CliError> {
    match &spec.working_dir {
        Some(dir) => Ok(dir.clone()),
        None => super::args::current_dir(),
    }
}

impl PreparedChat {
    /// What the arguments describe, on a thread that is kept in this store.
    pub(crate) async fn of(
        global: &Global,
        store: Store,
        args: SessionArgs,
        thread: Option<&str>,
        is_attended: bool,
    ) -> Result<Self, CliError> {
        let auths = global.auths_over(&store);
        let host = open_host(global, &store, auths.clone(), &args).await?;
        let mut spec = args.spec(&host, global).await?;
        chat_rules::apply(global, &mut spec)?;
        let thread = match thread {
            Some(id) => Some(existing_thread(&store, id).await?),
            None => None,
        };
        Ok(Self {
            models: Some(host.models().clone()),
            host,
            store,
            spec,
            thread,
            is_attended,
            auths,
        })
    }

    /// Opens the session.
    pub(crate) async fn open(self) -> Result<OwnChat, CliError> {
        let session = match self.thread {
            Some(thread) => self.host.resume(self.spec.clone(), thread).await?,
            None => self.host.session(self.spec.clone()).await?,
        };
        if self.is_attended {
            session.attend(ApprovalMode::Attended).await;
        }
        Ok(OwnChat {
            host: self.host,
            store: self.store,
            spec: self.spec,
            events: session.events_since_opened(),
            session: Arc::new(session),
            is_attended: self.is_attended,
            models: self.models,
            auths: self.auths,
        })
    }
}

impl OwnChat {
    /// Goes on with another model.
    pub(crate) async fn change_model(
        &mut self,
        provider: &str,
        model: &str,
    ) -> Result<(), CliError> {
        let settings = SessionSettings {
            provider: Some(provider.to_owned()),
            model: Some(model.to_owned()),
            ..SessionSettings::default()
        };
        self.session.change(settings, EffectiveFrom::Now).await?;
        // An address that was given stays that of the provider before.
        self.spec = SessionSpec {
            provider: Some(provider.to_owned()),
            model: Some(model.to_owned()),
            ..self.spec.clone().with_provider_base_url()
        };
        Ok(())
    }

    /// Goes on with another saved auth and a model of its provider.
    pub(crate) async fn change_auth(&mut self, auth: &str, model: &str) -> Result<(), CliError> {
        let auth: AuthRef = auth.parse().map_err(CliError::usage_from)?;
        let spec = SessionSpec {
            provider: None,
            auth: Some(auth),
            model: Some(model.to_owned()),
            ..self.spec.clone()
        };
        let spec = self.host.resolve_provider(spec).await?;
        let thread = self.session.thread().clone();
        self.reopen(spec, thread).await
    }

    /// Goes on with a thread.
    async fn go_to(&mut self, thread: ThreadId) -> Result<(), CliError> {
        self.reopen(self.spec.clone(), thread).await
    }

    /// Opens the session anew. Where that fails it goes on as it was.
    async fn reopen(&mut self, spec: SessionSpec, thread: ThreadId) -> Result<(), CliError> {
        let before = self.session.thread().clone();
        // One writes a thread at a time.
        self.session.end().await;
        let (opened, failed) = match self.host.resume(spec.clone(), thread).await {
            Ok(opened) => {
                self.spec = spec;
                (opened, None)
            }
            Err(error) => {
                let opened = self.host.resume(self.spec.clone(), before).await?;
                (opened, Some(error))
            }
        };
        if self.is_attended {
            opened.attend(ApprovalMode::Attended).await;
        }
        self.events = opened.events_since_opened();
        self.session = Arc::new(opened);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl SavedChat {
    /// The person took it to this thread.
    fn set_shown_thread(&mut self, thread: Option<ThreadId>) {
        self.following = Following::No;
        self.shown_thread = thread;
    }

    /// Whether the person sees another thread than this one.
    pub(crate) fn shows_another(&self, thread: &ThreadId) -> bool {
        self.shown_thread
            .as_ref()
            .is_some_and(|shown| shown != thread)
    }
}

impl ChatSession {
    pub(crate) fn store(&self) -> &Store {
        match self {
            Self::Own(own) => &own.store,
            Self::Saved(saved) => saved.sessions.manager().store(),
        }
    }

    /// The thread that it goes on with.
    pub(crate) async fn thread(&self) -> Result<ThreadId, CliError> {
        match self {
            Self::Own(own) => Ok(own.session.thread().clone()),
            Self::Saved(saved) => {
                let view = saved.sessions.manager().get(&saved.id).await?;
                let thread = view.thread.map(|thread| thread.id);
                thread.ok_or_else(|| {
                    CliError::usage("the session has no thread").hint("`/new` begins one")
                })
            }
        }
    }

    pub(crate) async fn start_thread(&mut self) -> Result<(), CliError> {
        match self {
            Self::Own(own) => own.go_to(ThreadId::fresh()).await,
            Self::Saved(saved) => {
                let view = saved.sessions.manager().start_thread(&saved.id).await?;
                saved.set_shown_thread(view.thread.map(|thread| thread.id));
                Ok(())
            }
        }
    }

    /// Goes on with a thread that is there.
    pub(crate) async fn go_to(&mut self, thread: ThreadId) -> Result<(), CliError> {
        match self {
            Self::Own(own) => {
                own.store.thread(&thread).await?;
                own.go_to(thread).await
            }
            Self::Saved(saved) => {
                let manager = saved.sessions.manager();
                let view = manager.choose_thread(&saved.id, &thread).await?;
                saved.set_shown_thread(view.thread.map(|thread| thread.id));
                Ok(())
            }
        }
    }

    /// Goes on with a fork behind an entry, the newest where none is named.
    pub(crate) async fn fork(&mut self, at: Option<u64>) -> Result<(), CliError> {
        let thread = self.thread().await?;
        match self {
            Self::Own(own) => {
                let at = match at {
                    Some(at) => at,
                    None => own.store.thread(&thread).await?.last_seq,
                };
                let fork = ThreadId::fresh();
                own.store.fork(&thread, at, &fork).await?;
                own.go_to(fork).await
            }
            Self::Saved(saved) => {
                let manager = saved.sessions.manager();
                let view = manager.fork_thread(&saved.id, &thread, at).await?;
                saved.set_shown_thread(view.thread.map(|thread| thread.id));
                Ok(())
            }
        }
    }

    /// Tells the last of what was said in its thread, if it has one, where nothing is redrawn; whether
    /// something was told.
    pub(crate) async fn print_recent(&self) -> Result<bool, CliError> {
        match self.thread().await {
            Ok(thread) => Ok(past_turns::print_recent(self.store(), &thread).await?),
            Err(_) => Ok(false),
        }
    }

    /// Tells the same where it goes on with another thread than this one.
    pub(crate) async fn print_recent_unless_on(
        &self,
        thread: Option<&ThreadId>,
    ) -> Result<bool, CliError> {
        let now = self.thread().await.ok();
        if now.as_ref() == thread {
            return Ok(false);
        }
        self.print_recent().await
    }

    /// Says how to come back to it.
    pub(crate) fn print_resume_command(&self) {
        let again = self.resume_command();
        print_note(format_args!("{DIM}Go on with it: {}{RESET}", clean(&again)));
    }

    /// The command that comes back to it, as a shell reads it: what the chat was begun with is said
    /// again as far as neither the thread nor the saved session has it.
    fn resume_command(&self) -> String {
        let (begun_with, value, is_saved) = match self {
            Self::Own(own) => ("--thread", own.session.thread().to_string(), false),
            Self::Saved(saved) => ("--session", saved.name.clone(), true),
        };
        let given = std::env::args_os().skip(1);
        let given = given.map(|word| word.to_string_lossy().into_owned());
        let mut command = format!("conjure chat {begun_with} {}", quoted_word(&value));
        for word in repeated_options(given, is_saved) {
            command.push(' ');
            command.push_str(&quoted_word(&word));
        }
        command
    }

    /// The files that calls made.
    pub(crate) async fn files(&self) -> Result<Vec<Artifact>, CliError> {
        match self {
            Self::Own(own) => Ok(own.session.created_files()),
            Self::Saved(saved) => {
                let thread = self.thread().await?;
                let host = saved.sessions.manager().host();
                Ok(host.files(&thread).await.map_err(SessionError::from)?)
            }
        }
    }

    /// Where a file is on this machine.
    pub(crate) async fn resolve(&self, file: &Artifact) -> Result<PathBuf, CliError> {
        match self {
            Self::Own(own) => {
                let path = own.session.resolve(&file.id).await;
                path.map_err(|error| CliError::from_source(Exit::No, error))
            }
            Self::Saved(saved) => {
                if let Some(path) = &file.path {
                    return Ok(path.clone());
                }
                let thread = self.thread().await?;
                let manager = saved.sessions.manager();
                let fetched = manager.fetch_file(&thread, &file.id, &file.source, Some(&saved.id));
                match Box::pin(fetched).await {
                    Ok(fetched) => Ok(fetched.path),
                    Err(error) => Err(CliError::from_source(Exit::No, error)),
                }
            }
        }
    }

    /// The host that runs what is asked for here.
    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Own(own) => &own.host,
            Self::Saved(saved) => saved.sessions.manager().host(),
        }
    }

    /// Where calls work.
    pub(crate) async fn directory(&self) -> Result<PathBuf, CliError> {
        Ok(match self {
            Self::Own(own) => directory_of(&own.spec)?,
            Self::Saved(saved) => saved.sessions.manager().get(&saved.id).await?.working_dir,
        })
    }

    /// What stops that which a command began, also while the command has the chat.
    pub(crate) fn stopper(&self) -> ChatStopper {
        match self {
            Self::Own(own) => ChatStopper::Own(Arc::clone(&own.session)),
            Self::Saved(saved) => {
                ChatStopper::Saved(saved.sessions.manager().clone(), saved.id.clone())
            }
        }
    }

    /// What the thread came to.
    pub(crate) async fn cost(&self) -> Result<TurnCost, CliError> {
        match self {
            Self::Own(own) => Ok(own.session.cost().await.total),
            Self::Saved(saved) => {
                let thread = self.thread().await?;
                let host = saved.sessions.manager().host();
                let cost = host.cost(&thread).await.map_err(SessionError::from)?;
                Ok(cost.total)
            }
        }
    }

    /// How many tokens a model takes, where that is known.
    pub(crate) fn window(&self, provider: &str, model: &str) -> Option<u64> {
        let models = match self {
            Self::Own(own) => own.models.as_ref(),
            Self::Saved(saved) => saved.models.as_ref(),
        };
        models?.facts(provider, model)?.context
    }
}

/// Stops what was begun in a chat.
pub(crate) enum ChatStopper {
    Own(Arc<Session>),
    Saved(Manager, String),
}

impl ChatStopper {
    pub(crate) async fn stop(&self) {
        match self {
            Self::Own(session) => session.cancel(true).await,
            // Nothing may run any more.
            Self::Saved(manager, id) => drop(manager.cancel(id, false).await),
        }
    }
}

/// Returns the words of a command line that are said again.
fn repeated_options(words: impl Iterator<Item = String>, is_saved: bool) -> Vec<String> {
    let words: Vec<String> = words.take_while(|word| word != "--").collect();
    let has_file = words.iter().any(|word| FILES.contains(&option(word)));
    let is_meant = |name: &str| {
        let is_of_own =
            OWN_SESSION_OPTIONS.contains(&name) || (has_file && ANSWERER.contains(&name));
        REPEATED_OPTIONS.contains(&name) || (!is_saved && is_of_own)
    };
    let mut again = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let name = option(&word);
        if is_meant(name) {
            // Its value may be in the same word.
            let is_alone = word == name;
            again.push(word);
            if is_alone {
                again.extend(words.next());
            }
        } else if !is_saved && OWN_SESSION_FLAGS.contains(&name) {
            again.push(word);
        }
    }
    again
}

/// The option that a word begins with.
fn option(word: &str) -> &str {
    match word.get(..2) {
        // `-cFILE` is one word.
        Some("-c") => "-c",
        _ => word.split_once('=').map_or(word, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Args as _;

    use super::super::chat::ChatArgs;
    use super::*;

    fn again(given: &str, is_saved: bool) -> String {
        let words = given.split_whitespace().map(str::to_owned);
        repeated_options(words, is_saved).join(" ")
    }

    #[test]
    fn what_a_thread_does_not_know_is_said_again() {
        let given = "--data-dir /a chat --provider p --model m --base-url=http://x:1 --continue \
                     --executor none --persona x --working-dir /b --thread t --json";
        let said =
            "--data-dir /a --base-url=http://x:1 --executor none --persona x --working-dir /b";
        assert_eq!(again(given, false), said);
        // The thread knows who answered, and the file would choose another.
        for file in [
            "-c s.toml",
            "-cs.toml",
            "--config=s.toml",
            "--script s.json",
        ] {
            let given =
                format!("chat {file} --provider p --auth=a --model m --continue -- --deny x");
            let said = format!("{file} --provider p --auth=a --model m");
            assert_eq!(again(&given, false), said);
        }
    }

    #[test]
    fn what_is_forbidden_is_forbidden_again() {
        let rules = "--isolation process --allow a --ask=b --deny c";
        let of_own = "--sandbox working-dir --allow-network --allow-write /w --allow-read /r \
                      --set a=b --max-iterations 3";
        let given = format!("chat {rules} {of_own}");
        assert_eq!(again(&given, false), format!("{rules} {of_own}"));
        // A saved session has the others itself.
        assert_eq!(again(&given, true), rules);
    }

    /// The options of a chat that are not said again, and why.
    const NOT_SAID: [(&str, &str); 4] = [
        (
            "--session",
            "what comes back names the thread, or the saved session",
        ),
        (
            "--thread",
            "what comes back names the thread, or the saved session",
        ),
        ("--continue", "it chooses the thread"),
        ("--resume", "it chooses the thread"),
    ];

    #[test]
    fn of_every_option_it_is_known_whether_it_is_said_again() {
        let command = ChatArgs::augment_args(clap::Command::new("chat"));
        let not_said = NOT_SAID.iter().map(|(name, _)| *name);
        let said = REPEATED_OPTIONS
            .iter()
            .chain(&OWN_SESSION_OPTIONS)
            .chain(&OWN_SESSION_FLAGS);
        let said = said.chain(&ANSWERER).copied();
        let known: BTreeSet<&str> = said.chain(not_said).collect();
        for option in command.get_arguments() {
            let Some(name) = option.get_long() else {
                continue;
            };
            let name = format!("--{name}");
            assert!(known.contains(name.as_str()), "{name} is in no list");
            let has_value = option.get_action().takes_values();
            let is_flag = OWN_SESSION_FLAGS.contains(&name.as_str());
            let is_said = !NOT_SAID.iter().any(|(not_said, _)| *not_said == name);
            assert!(
                !is_said || has_value != is_flag,
                "{name} has a value or not"
            );
        }
    }
}
