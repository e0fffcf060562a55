//! What a chat talks in: a session of its own, or a saved one.

use std::path::PathBuf;
use std::sync::Arc;

use conjure_config::{AuthRef, SessionSpec};
use conjure_core::cost::TurnCost;
use conjure_core::turn::When;
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
use super::run::{known_thread, open_host};
use super::sessions::SavedSessions;

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
    /// Its id.
    pub(crate) id: String,
    /// What the person calls it.
    pub(crate) name: String,
    pub(crate) terms: TurnTerms,
    pub(crate) models: Option<ModelBook>,
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
    /// What the arguments describe, on a thread that is kept.
    pub(crate) async fn of(
        global: &Global,
        args: SessionArgs,
        thread: Option<&str>,
        is_attended: bool,
    ) -> Result<Self, CliError> {
        let (host, store) = open_host(global, &args).await?;
        let mut spec = args.spec(&host, global).await?;
        chat_rules::apply(global, &mut spec)?;
        let thread = match thread {
            Some(id) => Some(known_thread(&store, id).await?),
            None => None,
        };
        Ok(Self {
            host,
            store,
            spec,
            thread,
            is_attended,
            models: models(global),
            auths: global.auths(),
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
        self.session.change(settings, When::Now).await?;
        // An address that was given stays that of the provider before.
        self.spec = SessionSpec {
            provider: Some(provider.to_owned()),
            model: Some(model.to_owned()),
            ..self.spec.clone().with_base_url_at_its_provider()
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
        let spec = self.host.settle(spec).await?;
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
                saved.sessions.manager().start_thread(&saved.id).await?;
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
                manager.choose_thread(&saved.id, &thread).await?;
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
                manager.fork_thread(&saved.id, &thread, at).await?;
                Ok(())
            }
        }
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
