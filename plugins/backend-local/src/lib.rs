//! The local executor: commands and files on this machine.
//!
//! Commands run as the host's own user with a clean environment, in the session's working
//! directory, under limits of time and output, and leave no process behind, not even when the host
//! is killed. They see neither the host's own files nor into its processes. The file operations
//! stay inside the session's directories. Unless the session has a sandbox, a command may do whatever
//! else the user may do. Begin at `session.rs`, then `commands.rs`.

#[cfg(not(unix))]
compile_error!("the local executor needs a Unix system");

mod agent;
mod commands;
mod config;
mod file_operations;
mod sandbox;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::Path;

use conjure_exec_agent::files::CallRoots;
use conjure_exec_agent::private::PrivatePaths;
use conjure_exec_agent::sandbox_rules::SandboxRules;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, PROVIDER_KEYS, Permissions,
    StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Executor, ExecutorPlugin, Result, export_executor};

use crate::commands::Commands;
use crate::config::LocalSettings;
use crate::session::LocalSessions;

/// Runs commands and keeps files on this machine, for many sessions at once.
struct Local {
    sessions: LocalSessions,
    commands: Commands,
    private: PrivatePaths,
}

impl Executor for Local {
    async fn init(&self, cx: Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        let working_dir = cx
            .envelope()
            .working_dir
            .ok_or_else(file_operations::no_working_dir)?;
        let skills = request.skills.clone();
        self.sessions.init(&cx, request)?;
        Ok(ExecutorReady {
            working_dir,
            skills,
        })
    }

    async fn bash(&self, cx: Cx, request: Bash) -> Result<BashOutput> {
        let session = self.sessions.of(cx.session());
        self.commands.run(&cx, request, &session).await
    }

    async fn view(&self, cx: Cx, request: View) -> Result<Viewed> {
        self.with_roots(cx, move |cx, roots| {
            file_operations::view(cx, roots, &request)
        })
        .await
    }

    async fn create_file(&self, cx: Cx, request: CreateFile) -> Result<Written> {
        self.tell_location(&cx);
        self.with_roots(cx, move |_cx, roots| {
            file_operations::create_file(roots, &request)
        })
        .await
    }

    async fn str_replace(&self, cx: Cx, request: StrReplace) -> Result<Written> {
        self.tell_location(&cx);
        self.with_roots(cx, move |_cx, roots| {
            file_operations::str_replace(roots, &request)
        })
        .await
    }

    async fn cleanup(&self, cx: Cx) -> Result<()> {
        self.sessions.end(cx.session()).await;
        Ok(())
    }
}

impl Local {
    /// Tells the host where a call writes.
    fn tell_location(&self, cx: &Cx) {
        if let Some(dir) = cx.working_dir() {
            let session = self.sessions.of(cx.session());
            session.tell_location(cx, dir);
        }
    }

    /// Runs file work on a thread that may block, with the directories of the call.
    async fn with_roots<T: Send + 'static>(
        &self,
        cx: Cx,
        work: impl FnOnce(&Cx, &CallRoots) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let session = self.sessions.of(cx.session());
        let private = self.private.clone();
        blocking(move || {
            // What commands of a sandbox do not see, its file tools do not see either.
            let setup = session.setup();
            let hidden = setup.sandbox().map(SandboxRules::hidden);
            let private = private.iter().chain(hidden.iter().flatten());
            let roots = file_operations::roots(&cx, &session, private)?;
            work(&cx, &roots)
        })
        .await
    }
}

fn plugin() -> ExecutorPlugin<Local> {
    ExecutorPlugin::new(
        "local",
        "Runs commands and keeps files on this machine",
        |setup| {
            let settings = LocalSettings::from_setup(&setup)?;
            let own = setup.create.data_dir.as_deref().map(Path::new);
            let private = PrivatePaths::of(own, &settings.hidden_paths);
            Ok(Local {
                commands: Commands::new(settings, private.clone()),
                private,
                sessions: LocalSessions::default(),
            })
        },
    )
    .config_schema(config::schema())
    .with_sandbox()
    .permissions(Permissions {
        // Commands are passed a provider's key where `pass_env` names that.
        secrets: PROVIDER_KEYS.map(str::to_owned).into(),
        commands: true,
        network: true,
        ..Permissions::default()
    })
}

export_executor!(plugin, name = "local");

/// Runs work that blocks on a thread of its own; a panic in it goes on in the caller, where the
/// SDK turns it into an error.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(_) => Err(Error::cancelled()),
        },
    }
}
