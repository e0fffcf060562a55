//! An editor: a client made with the protocol's own library, and `conjure acp` at the other end.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentBlock, CreateElicitationRequest, CreateElicitationResponse,
    InitializeRequest, InitializeResponse, NewSessionRequest, PromptRequest, PromptResponse,
    ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, SelectedPermissionOutcome, SessionId, SessionNotification,
    SessionUpdate, TextContent, ToolCall, ToolCallStatus,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, ByteStreams, Client, Error};
use conjure_kit::{Cli, ProgramHandle};
use serde_json::Value;
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(25);

/// What the editor saw, and what it answers.
#[derive(Clone, Default)]
pub(super) struct Editor {
    updates: Arc<Mutex<Vec<SessionNotification>>>,
    asked: Arc<Mutex<Vec<RequestPermissionRequest>>>,
    /// The options that the person chooses, in this order; with none left nobody answers.
    choices: Arc<Mutex<VecDeque<String>>>,
    /// The forms that were shown.
    pub(super) forms: Arc<Mutex<Vec<Value>>>,
    /// Texts of files as they are shown, and not saved.
    pub(super) shown: Arc<Mutex<BTreeMap<PathBuf, String>>>,
    /// Whether it owes the answer where it is asked for a file.
    pub(super) withholds_files: Arc<AtomicBool>,
    /// The answers that it owes.
    owed_files: Arc<Mutex<Vec<Responder<ReadTextFileResponse>>>>,
    /// What the person answers to a form.
    pub(super) form_answer: Arc<Mutex<Option<Value>>>,
}

/// The connection of an editor, and the process at its other end.
pub(super) struct Talk {
    pub(super) agent: ConnectionTo<Agent>,
    pub(super) editor: Editor,
    pub(super) said: InitializeResponse,
}

/// Starts `conjure acp`, connects to it as an editor that can do this, and does something.
pub(super) fn with_editor<T>(
    cli: Cli,
    editor: &Editor,
    can: ClientCapabilities,
    talk: impl AsyncFnOnce(Talk) -> Result<T, Error> + Send,
) -> T
where
    T: Send,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (running, stdin, stdout) = cli.start_piped().unwrap();
        let stdin = ChildStdin::from_std(stdin).unwrap();
        let stdout = ChildStdout::from_std(stdout).unwrap();
        let streams = ByteStreams::new(stdin.compat_write(), stdout.compat());
        let done = connected(editor.clone(), streams, can, talk).await;
        let done = done.unwrap_or_else(|error| panic!("{error:?}\n{running:?}"));
        ended_well(running);
        done
    })
}

/// The program ends by itself when its editor is gone.
fn ended_well(running: ProgramHandle) {
    let output = running.wait().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
}

async fn connected<T>(
    editor: Editor,
    streams: impl agent_client_protocol::ConnectTo<Client> + 'static,
    can: ClientCapabilities,
    talk: impl AsyncFnOnce(Talk) -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let (updates, asked, form) = (editor.clone(), editor.clone(), editor.clone());
    let shown = editor.clone();
    Client
        .v1()
        .name("editor")
        .on_receive_notification(
            async move |note: SessionNotification, _| {
                updates.updates.lock().unwrap().push(note);
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest,
                        responder,
                        agent: ConnectionTo<Agent>| {
                asked.asked.lock().unwrap().push(request);
                let asked = asked.clone();
                let cancelled = responder.cancellation();
                agent.spawn(async move {
                    let chosen = tokio::select! {
                        chosen = asked.choice() => RequestPermissionOutcome::Selected(
                            SelectedPermissionOutcome::new(chosen),
                        ),
                        () = cancelled.cancelled() => RequestPermissionOutcome::Cancelled,
                    };
                    responder.respond(RequestPermissionResponse::new(chosen))
                })
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ReadTextFileRequest,
                        responder: Responder<ReadTextFileResponse>,
                        _| {
                if shown.withholds_files.load(Ordering::SeqCst) {
                    shown.owed_files.lock().unwrap().push(responder);
                    return Ok(());
                }
                let shown = shown.shown.lock().unwrap().get(&request.path).cloned();
                match shown {
                    Some(text) => responder.respond(ReadTextFileResponse::new(text)),
                    None => responder.respond_with_error(Error::invalid_params()),
                }
            },
            agent_client_protocol::on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CreateElicitationRequest, responder, _| {
                let shown = serde_json::to_value(&request).unwrap();
                form.forms.lock().unwrap().push(shown);
                let answer = form.form_answer.lock().unwrap().clone().unwrap();
                let answer: CreateElicitationResponse = serde_json::from_value(answer).unwrap();
                responder.respond(answer)
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(streams, async move |agent: ConnectionTo<Agent>| {
            let hello = InitializeRequest::new(ProtocolVersion::V1).client_capabilities(can);
            let said = agent.send_request(hello).block_task().await?;
            talk(Talk {
                agent,
                editor,
                said,
            })
            .await
        })
        .await
}

impl Editor {
    /// The person will choose these options, one a question.
    pub(super) fn chooses(&self, options: &[&str]) {
        let mut choices = self.choices.lock().unwrap();
        choices.extend(options.iter().map(ToString::to_string));
    }

    async fn choice(&self) -> String {
        loop {
            if let Some(choice) = self.choices.lock().unwrap().pop_front() {
                return choice;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What was asked so far: title and options.
    pub(super) fn asked(&self) -> Vec<RequestPermissionRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether it was asked for a file and owes the answer.
    pub(super) fn owes_a_file(&self) -> bool {
        !self.owed_files.lock().unwrap().is_empty()
    }

    /// The updates of a session so far.
    pub(super) fn updates(&self, session: &SessionId) -> Vec<SessionUpdate> {
        let all = self.updates.lock().unwrap();
        let own = all.iter().filter(|note| note.session_id == *session);
        own.map(|note| note.update.clone()).collect()
    }

    /// What the agent said in a session so far.
    pub(super) fn answer(&self, session: &SessionId) -> String {
        text(
            self.updates(session)
                .iter()
                .filter_map(|update| match update {
                    SessionUpdate::AgentMessageChunk(chunk) => Some(&chunk.content),
                    _ => None,
                }),
        )
    }

    /// What it thought.
    pub(super) fn thought(&self, session: &SessionId) -> String {
        text(
            self.updates(session)
                .iter()
                .filter_map(|update| match update {
                    SessionUpdate::AgentThoughtChunk(chunk) => Some(&chunk.content),
                    _ => None,
                }),
        )
    }

    /// What the person said, as it is told when a session is loaded.
    pub(super) fn question(&self, session: &SessionId) -> String {
        text(
            self.updates(session)
                .iter()
                .filter_map(|update| match update {
                    SessionUpdate::UserMessageChunk(chunk) => Some(&chunk.content),
                    _ => None,
                }),
        )
    }

    /// The calls of a session as they are by now.
    pub(super) fn calls(&self, session: &SessionId) -> Vec<ToolCall> {
        let mut calls: Vec<ToolCall> = Vec::new();
        for update in self.updates(session) {
            match update {
                SessionUpdate::ToolCall(call) => calls.push(call),
                SessionUpdate::ToolCallUpdate(update) => {
                    let known = calls.iter_mut();
                    let mut known = known.filter(|call| call.tool_call_id == update.tool_call_id);
                    let known = known.next().expect("an update of a call that was not told");
                    known.update(update.fields);
                }
                _ => {}
            }
        }
        calls
    }

    /// The status of each call.
    pub(super) fn statuses(&self, session: &SessionId) -> Vec<ToolCallStatus> {
        self.calls(session).iter().map(|call| call.status).collect()
    }

    /// Waits until something is so.
    pub(super) async fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !is_so(self) {
            let seen = self.updates.lock().unwrap().clone();
            assert!(Instant::now() < until, "{what}: {seen:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn text<'a>(blocks: impl Iterator<Item = &'a ContentBlock>) -> String {
    blocks
        .map(|block| match block {
            ContentBlock::Text(text) => text.text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect()
}

impl Talk {
    /// A new session in this directory.
    pub(super) async fn session(&self, dir: &std::path::Path) -> Result<SessionId, Error> {
        let new = self.agent.send_request(NewSessionRequest::new(dir));
        Ok(new.block_task().await?.session_id)
    }

    /// Says something, and waits for the end of the turn.
    pub(super) async fn says(
        &self,
        session: &SessionId,
        text: &str,
    ) -> Result<PromptResponse, Error> {
        self.sends(session, text).await
    }

    /// Says something at once, and gives the end of the turn.
    pub(super) fn sends(
        &self,
        session: &SessionId,
        text: &str,
    ) -> impl Future<Output = Result<PromptResponse, Error>> + use<> {
        let prompt = vec![ContentBlock::Text(TextContent::new(text))];
        let prompt = PromptRequest::new(session.clone(), prompt);
        self.agent.send_request(prompt).block_task()
    }
}
