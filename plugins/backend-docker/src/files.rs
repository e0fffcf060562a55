//! Files in the session's container: showing, writing, replacing, bringing and fetching.

use std::fs::{File, OpenOptions};
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use conjure_exec_agent::client::{ByteSource, TransferError, remote_file, remote_path, transfer};
use conjure_exec_agent::files::{self, CallRoots};
use conjure_exec_agent::message::{AgentReply, AgentRequest};
use conjure_skill_sdk::protocol::{
    CreateFile, FileRef, FilesGet, FilesPut, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Cx, Error, Result};

use crate::container::Container;
use crate::session::{BackendState, CallGuard, DockerSession};
use crate::to_error;

/// A call about files, in its session's container.
pub(crate) struct FileCall<'a> {
    cx: &'a Cx,
    session: Arc<DockerSession>,
    container: Arc<Container>,
    until: Instant,
    _running: CallGuard,
}

impl<'a> FileCall<'a> {
    pub(crate) async fn new(
        cx: &'a Cx,
        session: Arc<DockerSession>,
        world: &Arc<BackendState>,
    ) -> Result<Self> {
        let limit = cx.time_limit().unwrap_or(world.settings.timeout());
        let until = Instant::now() + limit;
        let running = session.running();
        Ok(Self {
            cx,
            container: session.container(world, cx, limit).await?,
            session,
            until,
            _running: running,
        })
    }

    /// Shows a file or a directory.
    pub(crate) async fn view(&self, request: View) -> Result<Viewed> {
        let request = AgentRequest::View {
            path: request.path,
            range: request.view_range,
        };
        match self.ask(&request, None, None).await? {
            AgentReply::View {
                content,
                directory,
                total_lines,
                cut,
            } => Ok(Viewed {
                content,
                directory,
                total_lines,
                full_content: cut.map(|(path, _, size)| file_ref(&self.container, &path, size)),
            }),
            _ => Err(unexpected()),
        }
    }

    /// Writes a file.
    pub(crate) async fn create_file(&self, request: CreateFile) -> Result<Written> {
        let source: Box<dyn Read + Send> = match (request.file_text, request.content) {
            (Some(text), _) => Box::new(Cursor::new(text.into_bytes())),
            (None, Some(content)) => Box::new(self.offered(&content)?),
            (None, None) => return Err(Error::invalid("`file_text` is missing")),
        };
        let path = request.path;
        let request = AgentRequest::Create { path };
        self.written(self.ask(&request, Some(source), None).await?)
    }

    /// Replaces the only occurrence of a passage.
    pub(crate) async fn str_replace(&self, request: StrReplace) -> Result<Written> {
        let request = AgentRequest::Replace {
            path: request.path,
            old: request.old_str,
            new: request.new_str,
        };
        self.written(self.ask(&request, None, None).await?)
    }

    /// Brings a file of the host's into the work directory.
    ///
    /// What the container sees already stays where it is. The path that comes back is the
    /// container's.
    pub(crate) async fn put(&self, request: &FilesPut) -> Result<FileRef> {
        let path = request.file.path.as_deref().map(Path::new);
        if let Some(there) = path.and_then(|path| self.container.mounted.in_the_container(path)) {
            return Ok(FileRef::at(there));
        }
        let source = Box::new(self.offered(&request.file)?);
        let name = request.file.name.clone();
        let reply = self
            .ask(&AgentRequest::Put { name }, Some(source), None)
            .await?;
        let AgentReply::Written { path, size, .. } = reply else {
            return Err(unexpected());
        };
        Ok(FileRef {
            id: Some(path.clone()),
            size: Some(size),
            ..FileRef::at(path)
        })
    }

    /// Fetches a file from the container to a path that does not exist yet.
    pub(crate) async fn get(&self, request: FilesGet) -> Result<FileRef> {
        let mut options = OpenOptions::new();
        let mut to = options
            .write(true)
            .create_new(true)
            .open(&request.to)
            .map_err(|error| Error::new(format!("{} cannot be written: {error}", request.to)))?;
        let path = remote_path(&request.id).to_owned();
        let asked = AgentRequest::Get { path };
        match self.ask(&asked, None, Some(&mut to)).await {
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

    /// A file of the host's, which lies where both sides may write: opened without following a
    /// link, and only if it is a regular file, since commands in the container may put anything
    /// there.
    fn offered(&self, file: &FileRef) -> Result<File> {
        let path = file.path.as_deref().ok_or_else(|| {
            Error::invalid(format!(
                "the file `{}` has no path; it must be fetched first",
                file.name
            ))
        })?;
        let working = &self.session.brought.working_dir;
        CallRoots::new(working, std::iter::empty(), self.cx.exchange_dir())
            .and_then(|roots| roots.resolve(path))
            .and_then(|place| files::open_file(&place))
            .map(|(file, _)| file)
            .map_err(|error| to_error(&error))
    }

    fn written(&self, reply: AgentReply) -> Result<Written> {
        match reply {
            AgentReply::Written {
                path,
                size,
                replaced,
                ..
            } => Ok(Written {
                file: file_ref(&self.container, &path, size),
                replaced,
            }),
            _ => Err(unexpected()),
        }
    }

    /// Makes a call to its end, with what goes in and to where what comes out goes.
    async fn ask(
        &self,
        request: &AgentRequest,
        source: ByteSource<'_>,
        to: Option<&mut File>,
    ) -> Result<AgentReply> {
        let (link, over) = (&self.container.link, self.session.over());
        let asked = transfer(self.cx, link, request, source, to, over, self.until).await;
        match asked {
            Ok(reply) => Ok(reply),
            Err(TransferError::Fault(error)) => Err(to_error(&error)),
            Err(TransferError::File(error)) => Err(error.into()),
            Err(TransferError::Late) => Err(took_too_long()),
            Err(TransferError::Gone) => Err(self.container.gone().await),
            Err(TransferError::Unheard) => Err(Error::cancelled()),
            Err(TransferError::Stuck) => Err(self.container.give_up().await),
        }
    }
}

/// A file in a container: by its path on this machine when it has one, else to be fetched.
pub(crate) fn file_ref(container: &Container, path: &str, size: u64) -> FileRef {
    let here = container.mounted.on_this_machine(path);
    let here = here.and_then(|path| path.into_os_string().into_string().ok());
    let file = match here {
        Some(here) => FileRef::at(here),
        None => remote_file(path),
    };
    FileRef {
        size: Some(size),
        ..file
    }
}

fn took_too_long() -> Error {
    Error::with_code(
        conjure_skill_sdk::abi::code::TIMEOUT,
        "the time of the call was over before it was done",
    )
}

fn unexpected() -> Error {
    Error::new("the agent's reply does not fit")
}
