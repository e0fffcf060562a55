//! The relay itself: listens in its directory, keeps the stream, and owns the agent.
//!
//! One connection has the stream at a time, the newest that was let in: the one before may hang on
//! a network that is gone. A thread reads from each and another writes to it; so it is with the
//! agent.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conjure_process_tree::{Wake, keep_private};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};

use super::connection::{ConnectionReader, StreamConnection};
use super::folders::IncomingFolders;
use super::frame::RelayFrame;
use super::refusal::RelayRefusal;
use super::session_dir::{RelayDir, RelaySocket};
use super::state::RelayState;
use super::{MAX_WAITING_BYTES, RELAY_PIECE, RELAY_VERSION, SKILLS, WORK, programs, removing};

/// Time limit for a client to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
/// After so long without a word whoever is connected is not there any more: an executor says
/// something every 20 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval of checks that a client is connected.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The stack of a thread; nothing here is deep.
pub(super) const STACK_BYTES: usize = 256 * 1024;

/// Serves a directory until it is closed, or nobody was there for `alone`. Says on standard output
/// that it is `ready`, or that another relay has the directory: `taken`.
///
/// # Errors
/// When nobody can listen there.
pub fn relay(dir: &Path, alone: Duration) -> io::Result<()> {
    // No end of a connection and no signal to its group reaches it.
    rustix::process::setsid()?;
    std::env::set_current_dir(dir)?;
    keep_private()?;
    let Some(dir) = RelayDir::take(dir)? else {
        return io::stdout().write_all(b"taken\n");
    };
    let mut socket = RelaySocket::bind()?;
    let relay = Arc::new(Relay {
        dir,
        state: Mutex::new(RelayState::new()),
        changed: Condvar::new(),
        closed: Wake::new()?,
    });
    io::stdout().write_all(b"ready\n")?;
    // Whoever started it waits for the end of this.
    rustix::stdio::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
    let _in_use = programs::keep_only_what_is_used();
    while !relay.is_over(alone) {
        relay.accept(&socket)?;
        socket.restore();
    }
    relay.end();
    Ok(())
}

pub(super) struct Relay {
    dir: RelayDir,
    pub(super) state: Mutex<RelayState>,
    pub(super) changed: Condvar,
    /// Readable once it was closed.
    closed: Wake,
}

/// Purpose of a connection.
enum Begun {
    /// The client takes the stream with this number, and is told how far it was read.
    Stream(u64),
    /// Ends the agent and the relay.
    Closes,
    /// Whoever came has gone, or somebody newer has come.
    Nothing,
}

impl Relay {
    fn is_over(&self, alone: Duration) -> bool {
        let state = self.lock();
        let somebody = state.current.is_some() || state.beginning > 0;
        let waits = if somebody {
            alone.max(SILENCE_TIMEOUT)
        } else {
            alone
        };
        // Where a command has removed the directory nobody comes back.
        let lost = !somebody && state.count > 0 && !self.dir.is_there();
        state.closed || lost || state.since.elapsed() > waits
    }

    /// Waits a while for somebody to come.
    fn accept(self: &Arc<Self>, socket: &RelaySocket) -> io::Result<()> {
        let time = Timespec::try_from(POLL_INTERVAL).ok();
        let mut fds = [
            PollFd::from_borrowed_fd(socket.listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.closed.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let Ok((socket, _)) = socket.listener.accept() {
            socket.set_nonblocking(false)?;
            let relay = Arc::clone(self);
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            // Whoever cannot be served comes again.
            let _ = thread.spawn(move || relay.serve(&socket));
        }
        Ok(())
    }

    /// Serves a connection to its end.
    fn serve(self: &Arc<Self>, socket: &UnixStream) {
        let Ok(mut reads) = ConnectionReader::new(socket) else {
            return;
        };
        let number = match self.begin(&mut reads, socket) {
            Ok((number, Begun::Stream(received))) => {
                let welcome = RelayFrame::Welcome(received).encode();
                let welcomed = (&*socket).write_all(&welcome);
                if welcomed
                    .and_then(|()| socket.set_read_timeout(None))
                    .is_err()
                {
                    return self.leave(number);
                }
                number
            }
            Ok((_, Begun::Closes)) => return self.close(socket),
            Ok((_, Begun::Nothing)) => return,
            Err(refusal) => {
                let refused = RelayFrame::Refused(refusal).encode();
                let _ = (&*socket).write_all(&refused);
                return;
            }
        };
        let writer = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let writing = socket
            .try_clone()
            .and_then(|socket| thread.spawn(move || writer.write(number, &socket)));
        let Ok(writing) = writing else {
            // Nobody would hear anything; whoever it is comes again.
            return self.leave(number);
        };
        let closes = self.read(number, &mut reads);
        self.leave(number);
        let _ = writing.join();
        if closes {
            self.close(socket);
        }
    }

    /// Ends and removes everything, and says so.
    fn close(&self, mut socket: &UnixStream) {
        self.end_agent(None);
        let removed = match self.remove() {
            Ok(()) => RelayFrame::Closed,
            Err(error) => RelayFrame::Refused(error.into()),
        };
        let _ = socket.write_all(&removed.encode());
        self.lock().closed = true;
        self.closed.wake();
    }

    /// Hears who comes, and gives him the stream. Also gives the number of the connection.
    fn begin(
        self: &Arc<Self>,
        reads: &mut ConnectionReader,
        socket: &UnixStream,
    ) -> Result<(u64, Begun), RelayRefusal> {
        socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
        let (token, stream, received) = match reads.next()? {
            None => return Ok((0, Begun::Nothing)),
            Some(RelayFrame::Hello {
                version,
                token,
                stream,
                received,
            }) if version == RELAY_VERSION => (token, stream, received),
            Some(RelayFrame::Hello { version, .. }) => {
                let why = format!("the relay speaks version {RELAY_VERSION}, and not {version}");
                return Err(io::Error::other(why).into());
            }
            Some(_) => return Err(io::Error::other("who comes is not said").into()),
        };
        let (number, goes_on) = {
            let mut state = self.lock();
            if *state.token.get_or_insert_with(|| token.clone()) != token {
                return Err(io::Error::other("this is somebody else's session").into());
            }
            state.count += 1;
            state.beginning += 1;
            state.since = Instant::now();
            (state.count, state.stream == Some(stream))
        };
        let connection = StreamConnection::new(number, socket);
        let begun = match (connection, goes_on) {
            (Ok(connection), true) => self.resume(connection, received),
            (Ok(connection), false) => self.begin_stream(connection, stream, reads, socket),
            (Err(error), _) => Err(error.into()),
        };
        self.lock().beginning -= 1;
        begun.map(|begun| (number, begun))
    }

    /// Lets a connection go on with the stream.
    fn resume(&self, connection: StreamConnection, received: u64) -> Result<Begun, RelayRefusal> {
        let mut state = self.lock();
        // Whoever cannot go on takes nothing from the one that can.
        if !state.out.has(received) {
            return Err(io::Error::other("what follows is not kept any more").into());
        }
        if !state.take_over(connection) {
            return Ok(Begun::Nothing);
        }
        let _ = state.out.resume(received);
        state.told.confirm_all();
        self.changed.notify_all();
        Ok(Begun::Stream(state.told.received))
    }

    /// Begins a stream with an agent of its own, once the skills have come.
    fn begin_stream(
        self: &Arc<Self>,
        connection: StreamConnection,
        stream: u64,
        reads: &mut ConnectionReader,
        mut socket: &UnixStream,
    ) -> Result<Begun, RelayRefusal> {
        socket.write_all(&RelayFrame::Vacant.encode())?;
        let skills = self.dir.path().join(SKILLS);
        let mut folders: Option<IncomingFolders> = None;
        let dir = loop {
            let Some(frame) = reads.next()? else {
                return Ok(Begun::Nothing);
            };
            if frame == RelayFrame::Close {
                return Ok(Begun::Closes);
            }
            // Who only looks whether the stream is there changes nothing.
            let folders = match &mut folders {
                Some(folders) => folders,
                None => folders.insert(IncomingFolders::new(skills.clone())?),
            };
            self.lock().since = Instant::now();
            match frame {
                RelayFrame::Begin(dir) => break dir,
                frame if folders.take(&frame)? => {}
                _ => return Err(io::Error::other("the stream was not begun").into()),
            }
        };
        let dir = dir.map_or_else(|| self.dir.path().join(WORK), PathBuf::from);
        if !dir.is_dir() {
            let why = format!("there is no directory {} to work in", dir.display());
            return Err(RelayRefusal::working_dir(why));
        }
        if let Err(error) = access(&dir, Access::EXEC_OK) {
            let why = format!("nobody can go to {} to work in: {error}", dir.display());
            return Err(RelayRefusal::working_dir(why));
        }
        match self.start_agent(connection, stream, &dir, &skills)? {
            true => Ok(Begun::Stream(0)),
            false => Ok(Begun::Nothing),
        }
    }

    /// Reads what a connection says, to its end. Whether it closed all.
    fn read(&self, number: u64, reads: &mut ConnectionReader) -> bool {
        while let Ok(Some(frame)) = reads.next() {
            // An agent that takes nothing holds this up only when very much waits for it.
            let full = |state: &mut RelayState| {
                state.is_current(number) && state.told.undelivered() >= 2 * MAX_WAITING_BYTES as u64
            };
            let state = self.changed.wait_while(self.lock(), full);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.is_current(number) {
                return false;
            }
            state.since = Instant::now();
            match frame {
                RelayFrame::Stream(bytes) => state.told.push(bytes),
                RelayFrame::Taken(count) => state.out.confirm(count),
                RelayFrame::Question(question) => {
                    state.question = Some((question, state.out.end()));
                }
                RelayFrame::Close => return true,
                _ => {}
            }
            self.changed.notify_all();
        }
        false
    }

    /// Writes to a connection for as long as it has the stream.
    fn write(&self, number: u64, mut socket: &UnixStream) {
        let mut told = false;
        loop {
            let idle = |state: &mut RelayState| {
                let has = !state.out.is_given()
                    || state.told.confirm.is_some()
                    || state.question.is_some();
                state.is_current(number) && !has && (told || state.over.is_none())
            };
            let state = self.changed.wait_while(self.lock(), idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.is_current(number) {
                return;
            }
            let mut bytes = Vec::new();
            if let Some(count) = state.told.confirm.take() {
                bytes.extend(RelayFrame::Taken(count).encode());
            }
            match state.out.next(RELAY_PIECE) {
                Some(piece) => bytes.extend(RelayFrame::Stream(piece).encode()),
                None => {
                    if let Some(how) = state.over.clone().filter(|_| !told) {
                        told = true;
                        bytes.extend(RelayFrame::Over(how).encode());
                    }
                }
            }
            let given = state.out.sent();
            if let Some((question, _)) = state.question.take_if(|(_, from)| given >= *from) {
                bytes.extend(RelayFrame::Answer(question).encode());
            }
            drop(state);
            if socket.write_all(&bytes).is_err() {
                return self.leave(number);
            }
        }
    }

    /// A connection is over.
    fn leave(&self, number: u64) {
        let mut state = self.lock();
        if state.is_current(number) {
            state.current = None;
            state.since = Instant::now();
        }
        self.changed.notify_all();
    }

    /// The end of all.
    fn end(&self) {
        let closed = self.lock().closed;
        if !closed {
            self.end_agent(None);
            let _ = self.remove();
        }
    }

    fn remove(&self) -> io::Result<()> {
        std::env::set_current_dir("/")?;
        match self.dir.is_there() {
            true => removing::remove(self.dir.path()),
            // What lies there now is somebody else's.
            false => Ok(()),
        }
    }

    /// One that nobody can come to.
    #[cfg(test)]
    pub(super) fn alone_in(dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            dir: RelayDir::take(dir).unwrap().unwrap(),
            state: Mutex::new(RelayState::new()),
            changed: Condvar::new(),
            closed: Wake::new().unwrap(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
