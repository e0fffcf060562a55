//! Files at a session's agent: showing, writing, replacing, bringing and fetching.

use std::fs::{File, OpenOptions};
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{
    CreateFile, FileRef, FilesGet, FilesPut, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Result};

use super::{AgentSession, CallGuard, tell_location, to_error};
use crate::client::{ByteSource, TransferError, remote_file, remote_path, transfer};
use crate::files::{self, CallRoots};
use crate::message::{AgentReply, AgentRequest};

/// A call about files, with its session's agent.
pub(super) struct FileCall<'a, S: AgentSession> {
    cx: &'a Cx,
    session: Arc<S>,
    agent: Arc<S::Agent>,
    deadline: Instant,
    _running: CallGuard,
}

impl<'a, S: AgentSession> FileCall<'a, S> {
    pub(super) async fn new(cx: &'a Cx, session: Arc<S>) -> Result<Self> {
        let limit = cx.time_limit().unwrap_or(session.shell().timeout);
        let until = Instant::now() + limit;
        let running = session.calls().begin(cx);
        Ok(Self {
            cx,
            agent: session.agent(cx, limit).await?,
            session,
            deadline: until,
            _running: running,
        })
    }

    /// Tells the host where the call writes.
    fn tell_location(&self) {
        tell_location(self.cx, &S::link(&self.agent).location());
    }

    /// Shows a file or a directory.
    pub(super) async fn view(&self, request: View) -> Result<Viewed> {
        let request = AgentRequest::View {
            path: request.path,
            range: request.view_range,
        };
        match self.ask(&request, None, None).await? {
            AgentReply::View {
                content,
                directory,
                total_lines,
                full_file: cut,
            } => Ok(Viewed {
                content,
                directory,
                total_lines,
                full_content: cut.map(|(path, _, size)| self.file(&path, size, None)),
            }),
            _ => Err(unexpected()),
        }
    }

    /// Writes a file.
    pub(super) async fn create_file(&self, request: CreateFile) -> Result<Written> {
        let source: Box<dyn Read + Send> = match (request.file_text, request.content) {
            (Some(text), _) => Box::new(Cursor::new(text.into_bytes())),
            (None, Some(content)) => Box::new(self.open_offered(&content)?),
            (None, None) => return Err(Error::invalid("`file_text` is missing")),
        };
        let path = request.path;
        let request = AgentRequest::Create { path };
        self.tell_location();
        self.to_written(self.ask(&request, Some(source), None).await?)
    }

    /// Replaces the only occurrence of a passage.
    pub(super) async fn str_replace(&self, request: StrReplace) -> Result<Written> {
        let request = AgentRequest::Replace {
            path: request.path,
            old: request.old_str,
            new: request.new_str,
        };
        self.tell_location();
        self.to_written(self.ask(&request, None, None).await?)
    }

    /// Brings a file of the host's into the work directory. What is seen there already stays where it
    /// is. The path that comes back is the one over there.
    pub(super) async fn put(&self, request: &FilesPut) -> Result<FileRef> {
        let path = request.file.path.as_deref().map(Path::new);
        let there = path.and_then(|path| self.session.shared_path(&self.agent, path));
        if let Some(there) = there {
            return Ok(FileRef::at(there));
        }
        let source = Box::new(self.open_offered(&request.file)?);
        let name = request.file.name.clone();
        let asked = AgentRequest::Put { name };
        match self.ask(&asked, Some(source), None).await? {
            AgentReply::Written {
                path, size, state, ..
            } => Ok(FileRef {
                size: Some(size),
                path: Some(path.clone()),
                ..remote_file(&path, Some(state))
            }),
            _ => Err(unexpected()),
        }
    }

    /// Fetches a file to a path that does not exist yet.
    pub(super) async fn get(&self, request: FilesGet) -> Result<FileRef> {
        let mut options = OpenOptions::new();
        let mut to = options
            .write(true)
            .create_new(true)
            .open(&request.to)
            .map_err(|error| Error::new(format!("{} cannot be written: {error}", request.to)))?;
        let path = remote_path(&request.id).to_owned();
        match self
            .ask(&AgentRequest::Get { path }, None, Some(&mut to))
            .await
        {
            Ok(AgentReply::Sent(size)) => Ok(FileRef {
                size: Some(size),
                ..FileRef::at(request.to)
            }),
            other => {
                // Half a file is worse than none.
                let _ = std::fs::remove_file(&request.to);
                other.and(Err(unexpected()))
            }
        }
    }

    /// A file of the host's, opened without following a link, and only if it is a regular one in
    /// the session's own directories: commands may put anything there.
    fn open_offered(&self, file: &FileRef) -> Result<File> {
        let path = file.path.as_deref().ok_or_else(|| {
            Error::invalid(format!(
                "the file `{}` has no path; it must be fetched first",
                file.name
            ))
        })?;
        let working = self.session.working_dir();
        CallRoots::new(working, std::iter::empty(), self.cx.exchange_dir())
            .and_then(|roots| roots.resolve(path))
            .and_then(|place| files::open_file(&place))
            .map(|(file, _)| file)
            .map_err(|error| to_error(&error))
    }

    /// Makes a call to its end, with what goes in and to where what comes out goes.
    async fn ask(
        &self,
        request: &AgentRequest,
        source: ByteSource<'_>,
        to: Option<&mut File>,
    ) -> Result<AgentReply> {
        let (link, over) = (S::link(&self.agent), self.session.calls().until_ended());
        match transfer(self.cx, link, request, source, to, over, self.deadline).await {
            Ok(reply) => Ok(reply),
            Err(TransferError::Fault(error)) => Err(to_error(&error)),
            Err(TransferError::File(error)) => Err(error.into()),
            Err(TransferError::TimedOut) => Err(Error::with_code(
                code::TIMEOUT,
                "the time of the call was over before it was done",
            )),
            Err(TransferError::AgentGone) => Err(self.session.agent_end(&self.agent).await),
            Err(TransferError::CancelUnconfirmed) => Err(Error::cancelled()),
            Err(TransferError::Stuck) => Err(self.session.abandon_agent(&self.agent).await),
        }
    }

    fn to_written(&self, reply: AgentReply) -> Result<Written> {
        match reply {
            AgentReply::Written {
                path,
                size,
                replaced,
                state,
                ..
            } => Ok(Written {
                file: self.file(&path, size, Some(state)),
                replaced,
            }),
            _ => Err(unexpected()),
        }
    }

    fn file(&self, path: &str, size: u64, state: Option<u64>) -> FileRef {
        self.session.file(&self.agent, path, size, state)
    }
}

fn unexpected() -> Error {
    Error::new("the agent's reply does not fit")
}
