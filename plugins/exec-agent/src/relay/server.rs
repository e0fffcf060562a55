//! The relay itself: listens in its directory, keeps the stream, and owns the agent.
//!
//! One connection has the stream at a time, the newest that was let in: the one before may hang on
//! a network that is gone. A thread reads from it, and another from the agent; each of them passes on
//! what it read as far as that is taken at once. The rest is written by two more.

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

use super::agent::agent_command;
use super::connection::{ConnectionReader, ConnectionStream, StreamConnection};
use super::folders::IncomingFolders;
use super::frame::RelayFrame;
use super::refusal::RelayRefusal;
use super::session_dir::{RelayDir, RelaySocket};
use super::state::RelayState;
use super::{MAX_WAITING_BYTES, RELAY_VERSION, SKILLS, WORK, programs, removal};

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
    let _in_use = programs::remove_unused_programs();
    while !relay.is_finished(alone) {
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
enum ConnectionPurpose {
    /// The client has the stream, and is told how far it was read.
    Stream,
    /// Ends the agent and the relay.
    Close,
    /// Whoever came has gone, or somebody newer has come.
    Obsolete,
}

impl Relay {
    fn is_finished(&self, alone: Duration) -> bool {
        let state = self.lock();
        let somebody = state.current.is_some() || state.handshakes > 0;
        let waits = if somebody {
            alone.max(SILENCE_TIMEOUT)
        } else {
            alone
        };
        // Where a command has removed the directory nobody comes back.
        let lost = !somebody && state.count > 0 && !self.dir.exists();
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
            let relay = Arc::clone(self);
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            // Whoever cannot be served comes again.
            let _ = thread.spawn(move || relay.serve(socket));
        }
        Ok(())
    }

    /// Serves a connection to its end.
    fn serve(self: &Arc<Self>, socket: UnixStream) {
        let Ok((stream, first)) = ConnectionStream::accept(socket, HELLO_TIMEOUT) else {
            return;
        };
        let stream = Arc::new(stream);
        let mut reads = ConnectionReader::new(&stream, &first);
        reads.limit = Some(HELLO_TIMEOUT);
        let number = match self.begin(&mut reads, &stream) {
            Ok((number, ConnectionPurpose::Stream)) => number,
            Ok((_, ConnectionPurpose::Close)) => return self.close(&stream, Vec::new()),
            Ok((_, ConnectionPurpose::Obsolete)) => return,
            Err(refusal) => {
                let refused = RelayFrame::Refused(refusal).encode();
                let _ = stream.write_all(&refused);
                return;
            }
        };
        reads.limit = None;
        let writer = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK_BYTES);
        let Ok(writing) = thread.spawn(move || writer.write(number)) else {
            // Nobody would hear anything; whoever it is comes again.
            self.disconnect(number);
            return;
        };
        let closes = self.read(number, &mut reads);
        let unsent = self.disconnect(number);
        if !closes {
            stream.end();
        }
        let _ = writing.join();
        if closes {
            self.close(&stream, unsent);
        }
    }

    /// Ends and removes everything, and says so, behind what was not said yet.
    fn close(&self, stream: &ConnectionStream, mut bytes: Vec<u8>) {
        self.end_agent(None);
        let removed = match self.remove() {
            Ok(()) => RelayFrame::Closed,
            Err(error) => RelayFrame::Refused(error.into()),
        };
        bytes.extend(removed.encode());
        let _ = stream.write_all(&bytes);
        self.lock().closed = true;
        self.closed.wake();
    }

    /// Hears who comes, and gives him the stream. Also gives the number of the connection.
    fn begin(
        self: &Arc<Self>,
        reads: &mut ConnectionReader,
        socket: &Arc<ConnectionStream>,
    ) -> Result<(u64, ConnectionPurpose), RelayRefusal> {
        let (token, stream, received) = match reads.next()? {
            None => return Ok((0, ConnectionPurpose::Obsolete)),
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
            state.handshakes += 1;
            state.since = Instant::now();
            (state.count, state.stream == Some(stream))
        };
        let connection = StreamConnection::new(number, socket);
        let begun = match goes_on {
            true => self.resume(connection, received),
            false => self.begin_stream(connection, stream, reads),
        };
        self.lock().handshakes -= 1;
        begun.map(|begun| (number, begun))
    }

    /// Lets a connection go on with the stream.
    fn resume(
        &self,
        mut connection: StreamConnection,
        received: u64,
    ) -> Result<ConnectionPurpose, RelayRefusal> {
        let mut state = self.lock();
        connection.unsent = RelayFrame::Welcome(state.incoming.received).encode();
        // Whoever cannot go on takes nothing from the one that can.
        if !state.outgoing.has(received) {
            return Err(io::Error::other("what follows is not kept any more").into());
        }
        if !state.take_over(connection) {
            return Ok(ConnectionPurpose::Obsolete);
        }
        let _ = state.outgoing.resume(received);
        state.incoming.confirm_all();
        state.flush();
        self.changed.notify_all();
        Ok(ConnectionPurpose::Stream)
    }

    /// Begins a stream with an agent of its own, once the skills have come.
    fn begin_stream(
        self: &Arc<Self>,
        mut connection: StreamConnection,
        stream: u64,
        reads: &mut ConnectionReader,
    ) -> Result<ConnectionPurpose, RelayRefusal> {
        connection
            .stream
            .write_all(&RelayFrame::NoStream.encode())?;
        let skills = self.dir.path().join(SKILLS);
        let mut folders: Option<IncomingFolders> = None;
        let dir = loop {
            let Some(frame) = reads.next()? else {
                return Ok(ConnectionPurpose::Obsolete);
            };
            if frame == RelayFrame::Close {
                return Ok(ConnectionPurpose::Close);
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
        connection.unsent = RelayFrame::Welcome(0).encode();
        let agent = agent_command(&dir, &skills)?;
        match self.start_agent(connection, stream, agent)? {
            true => Ok(ConnectionPurpose::Stream),
            false => Ok(ConnectionPurpose::Obsolete),
        }
    }

    /// Reads what a connection says, to its end. Whether it closed all.
    pub(super) fn read(&self, number: u64, reads: &mut ConnectionReader) -> bool {
        while let Ok(Some(frame)) = reads.next() {
            // An agent that takes nothing holds this up only when very much waits for it.
            let full = |state: &mut RelayState| {
                state.is_current(number)
                    && state.incoming.undelivered() >= 2 * MAX_WAITING_BYTES as u64
            };
            let state = self.changed.wait_while(self.lock(), full);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.is_current(number) {
                return false;
            }
            state.since = Instant::now();
            match frame {
                RelayFrame::Stream(bytes) => state.incoming.push(bytes),
                RelayFrame::Received(count) => {
                    state.outgoing.confirm(count);
                    // The agent may wait for room.
                    self.changed.notify_all();
                }
                RelayFrame::Question(question) => {
                    state.question = Some((question, state.outgoing.end()));
                }
                RelayFrame::Close => return true,
                _ => continue,
            }
            self.flush(state);
        }
        false
    }

    /// Tells the connection that has the stream what there is to tell. Threads that have nothing to
    /// do after that are not woken: a call is carried by as few as it can be.
    pub(super) fn flush(&self, mut state: MutexGuard<'_, RelayState>) {
        let had = state.current.as_ref().map(|current| current.number);
        state.flush();
        let is_held_up =
            had.is_some_and(|number| !state.is_current(number) || state.is_blocked(number));
        if is_held_up || !state.incoming.pending.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Writes to a connection what it did not take at once, for as long as it has the stream.
    fn write(&self, number: u64) {
        loop {
            let idle =
                |state: &mut RelayState| state.is_current(number) && !state.is_blocked(number);
            let state = self.changed.wait_while(self.lock(), idle);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            let Some(current) = state.current.as_ref().filter(|_| state.is_current(number)) else {
                return;
            };
            let stream = Arc::clone(&current.stream);
            drop(state);
            let room = stream.wait_for_room();
            let mut state = self.lock();
            if !state.is_current(number) {
                return;
            }
            if room.is_err() {
                drop(state);
                self.disconnect(number);
                return;
            }
            state.flush();
            self.changed.notify_all();
        }
    }

    /// A connection is over. Gives what it was not told yet.
    fn disconnect(&self, number: u64) -> Vec<u8> {
        let mut state = self.lock();
        let mut left = None;
        if state.is_current(number) {
            left = state.current.take();
            state.since = Instant::now();
        }
        self.changed.notify_all();
        left.map(|connection| connection.unsent).unwrap_or_default()
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
        match self.dir.exists() {
            true => removal::remove(self.dir.path()),
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
