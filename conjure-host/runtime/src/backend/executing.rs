//! Calls of an executor's tools: commands, and files to look at, make and change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use conjure_core::context::{absolute_skill_path, absolute_skill_paths, notes, result_lines};
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, StrReplace, View, Viewed, Written, op,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::active_call::{
    ActiveCall, CallAnswer, CommandArguments, FailedCall, arguments, command_result, decode,
};
use super::backend_lease::BackendLease;
use super::results::OutputCollector;
use super::run::Runner;
use conjure_config::skill_folders::LoadedFolder;
use conjure_plugins::Instance;

/// Time that an executor gets beyond a command's limit to end the command and say how it went.
const END_GRACE: Duration = Duration::from_secs(3);

impl Runner<'_> {
    pub(super) async fn executor(
        &self,
        active_call: &ActiveCall<'_>,
        lease: &BackendLease,
        folders: &[Arc<LoadedFolder>],
        output: &mut OutputCollector<'_>,
    ) -> Result<CallAnswer, FailedCall> {
        self.enter_lease(active_call, lease).await?;
        let skill_dir = match folders {
            [only] => lease.skill_dir(only.folder.name.as_str()),
            _ => None,
        };
        let call = Operation {
            runner: self,
            active_call,
            instance: lease.instance(),
            skill_dir,
        };
        match active_call.route.op() {
            op::EXECUTOR_BASH => {
                let CommandArguments { command } = arguments(active_call)?;
                let command = self
                    .with_files_in(active_call, command, Some(lease))
                    .await?;
                let command = self.with_skill_paths(command, lease, folders);
                let body = Bash {
                    command,
                    keep_bytes: u64::try_from(self.most_bytes / 2).ok(),
                    ..Bash::default()
                };
                let reply: BashOutput = call.ask(op::EXECUTOR_BASH, &body).await?;
                let ran = command_result(&reply, active_call.timeout, output);
                if ran.failure.is_some()
                    && let Some(note) = lease.sandbox_note()
                    && [&reply.stderr, &reply.stdout]
                        .into_iter()
                        .any(|text| notes::is_permission_error(text))
                {
                    output.text(&notes::sandbox_hint(&note));
                }
                Ok(ran)
            }
            op::EXECUTOR_VIEW => {
                let mut body: View = arguments(active_call)?;
                body.path = self.staged_path(active_call, body.path, lease).await?;
                body.path = folders.iter().fold(body.path, |path, folder| {
                    match lease.skill_dir(folder.folder.name.as_str()) {
                        Some(dir) => absolute_skill_path(&path, &folder.paths, dir, |path| {
                            self.request_context.working_dir.join(path).exists()
                        }),
                        None => path,
                    }
                });
                let viewed: Viewed = call.ask(op::EXECUTOR_VIEW, &body).await?;
                output.text(&viewed.content);
                if let Some(file) = &viewed.full_content {
                    output.file(file);
                }
                Ok(CallAnswer::success())
            }
            op::EXECUTOR_CREATE_FILE => {
                let body: CreateFile = arguments(active_call)?;
                let written: Written = call.ask(op::EXECUTOR_CREATE_FILE, &body).await?;
                output.text(&result_lines::written_file(&body.path, written.replaced));
                output.register(&written.file);
                Ok(CallAnswer::success())
            }
            op::EXECUTOR_STR_REPLACE => {
                let mut body: StrReplace = arguments(active_call)?;
                // Of a file elsewhere a copy is changed, which is this call's work then.
                body.path = self.staged_path(active_call, body.path, lease).await?;
                let written: Written = call.ask(op::EXECUTOR_STR_REPLACE, &body).await?;
                output.text(&result_lines::edited_file(&body.path));
                output.register(&written.file);
                Ok(CallAnswer::success())
            }
            other => Err(active_call.not_ready(&format!("executors have no operation `{other}`"))),
        }
    }

    /// The path at which an executor has a file that a call names by its handle; any other path as
    /// it is.
    async fn staged_path(
        &self,
        active_call: &ActiveCall<'_>,
        path: String,
        lease: &BackendLease,
    ) -> Result<String, FailedCall> {
        if !self.files().is_handle(&path) {
            return Ok(path);
        }
        let handle = BTreeSet::from([path.clone()]);
        let mut paths = self.staged_paths(active_call, handle, Some(lease)).await?;
        Ok(paths.remove(&path).unwrap_or(path))
    }

    /// The text with relative paths of the skills made absolute. What the working directory has
    /// itself is meant as it is.
    fn with_skill_paths(
        &self,
        text: String,
        lease: &BackendLease,
        folders: &[Arc<LoadedFolder>],
    ) -> String {
        folders.iter().fold(text, |text, folder| {
            match lease.skill_dir(folder.folder.name.as_str()) {
                Some(dir) => absolute_skill_paths(&text, &folder.paths, dir, |path| {
                    self.request_context.working_dir.join(path).exists()
                }),
                None => text,
            }
        })
    }
}

/// An operation of an executor.
struct Operation<'a> {
    runner: &'a Runner<'a>,
    active_call: &'a ActiveCall<'a>,
    instance: &'a Instance,
    skill_dir: Option<&'a str>,
}

impl Operation<'_> {
    async fn ask<B: Serialize, R: DeserializeOwned>(
        &self,
        op: &str,
        body: &B,
    ) -> Result<R, FailedCall> {
        let json = self
            .runner
            .envelope(self.active_call, body, self.skill_dir)?;
        let deadline = self.active_call.remaining() + END_GRACE;
        let reply = self
            .runner
            .request(self.instance, self.active_call, op, json, deadline)
            .await?;
        decode(self.active_call, op, &reply)
    }
}
