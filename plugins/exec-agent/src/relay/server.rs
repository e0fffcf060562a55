//! The relay itself: listens in its directory, keeps the stream, and owns the agent.
//!
//! One connection has the stream at a time, the newest: the one before may hang on a network that
//! is gone. A thread reads from each, another writes to it, and one reads from the agent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conjure_process_tree::frame::Frames;
use conjure_process_tree::{ProcessHandle, Wake, keep_private, own_program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::folders::IncomingFolders;
use super::frame::RelayFrame;
use super::removing;
use super::stream::SentStream;
use super::{CONFIRM, RELAY_PIECE, RELAY_VERSION, SKILLS, WORK};

/// The relay's socket, in its directory.
pub(super) const SOCKET: &str = "link";
/// How long somebody may take to say who comes.
const HELLO: Duration = Duration::from_secs(30);
/// After so long without a word whoever is connected is not there any more: an executor says
/// something every 20 s.
const SILENT: Duration = Duration::from_secs(90);
/// How often it is looked whether somebody is there.
const LOOKS: Duration = Duration::from_millis(500);
/// How long an agent may take to end everything that it runs.
const ENDS: Duration = Duration::from_secs(8);
/// The most bytes that wait for somebody to come back; then the agent waits.
const MOST: usize = 16 * 1024 * 1024;
/// The stack of a thread; nothing here is deep.
const STACK: usize = 256 * 1024;

/// Serves a directory until it is closed, or nobody was there for `alone`.
///
/// # Errors
/// When nobody can listen there.
pub fn relay(dir: &Path, alone: Duration) -> io::Result<()> {
    // No end of a connection and no signal to its group reaches it.
    rustix::process::setsid()?;
    std::env::set_current_dir(dir)?;
    keep_private()?;
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET)?;
    listener.set_nonblocking(true)?;
    let relay = Arc::new(Relay {
        dir: dir.to_owned(),
        state: Mutex::new(RelayState::new()),
        changed: Condvar::new(),
        incoming: Mutex::default(),
        closed: Wake::new()?,
    });
    io::stdout().write_all(b"ready\n")?;
    // Whoever started it waits for the end of this.
    rustix::stdio::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
    while !relay.is_over(alone) {
        relay.accept(&listener)?;
    }
    relay.end();
    Ok(())
}

struct Relay {
    dir: PathBuf,
    state: Mutex<RelayState>,
    changed: Condvar,
    incoming: Mutex<Incoming>,
    /// Readable once it was closed.
    closed: Wake,
}

/// Whoever holds both locks has taken that of [`Incoming`] first.
struct RelayState {
    /// What whoever came first said.
    token: Option<String>,
    /// How many connections there were, which is the number of the newest.
    count: u64,
    /// The one that has the stream.
    current: Option<Connection>,
    /// When something was heard last, or the last connection ended.
    since: Instant,
    /// The number of the stream.
    stream: Option<u64>,
    out: SentStream,
    /// How much of the other direction is to be confirmed.
    confirm: Option<u64>,
    agent: Option<ProcessHandle>,
    /// How the agent ended.
    over: Option<String>,
    closed: bool,
}

/// What a connection is for, with its number.
enum Begun {
    /// It has the stream.
    Stream(u64),
    /// It ends everything.
    Closes(u64),
    /// Whoever came has gone.
    Nothing,
}

struct Connection {
    number: u64,
    socket: UnixStream,
}

/// What goes to the agent.
#[derive(Default)]
struct Incoming {
    agent: Option<ChildStdin>,
    received: u64,
    confirmed: u64,
    /// The connection that may say something.
    from: u64,
}

impl RelayState {
    fn new() -> Self {
        Self {
            token: None,
            count: 0,
            current: None,
            since: Instant::now(),
            stream: None,
            out: SentStream::default(),
            confirm: None,
            agent: None,
            over: None,
            closed: false,
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.number == number)
    }
}

impl Relay {
    fn is_over(&self, alone: Duration) -> bool {
        let state = lock(&self.state);
        let waits = match state.current {
            Some(_) => alone.max(SILENT),
            None => alone,
        };
        state.closed || state.since.elapsed() > waits
    }

    /// Waits a while for somebody to come.
    fn accept(self: &Arc<Self>, listener: &UnixListener) -> io::Result<()> {
        let time = Timespec::try_from(LOOKS).ok();
        let mut fds = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.closed.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false)?;
            let relay = Arc::clone(self);
            let thread = thread::Builder::new().stack_size(STACK);
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
            Ok(Begun::Stream(number)) => number,
            Ok(Begun::Closes(number)) => {
                self.leave(number);
                return self.close(socket);
            }
            Ok(Begun::Nothing) => return,
            Err(error) => {
                let refused = RelayFrame::Refused(error.to_string()).encode();
                let _ = (&*socket).write_all(&refused);
                return;
            }
        };
        let writer = Arc::clone(self);
        let thread = thread::Builder::new().stack_size(STACK);
        let writing = socket
            .try_clone()
            .and_then(|socket| thread.spawn(move || writer.write(number, &socket)));
        let closes = self.read(number, &mut reads);
        self.leave(number);
        let _ = writing.map(thread::JoinHandle::join);
        if closes {
            self.close(socket);
        }
    }

    /// Ends and removes everything, and says so.
    fn close(&self, mut socket: &UnixStream) {
        self.end_agent();
        let removed = match self.remove() {
            Ok(()) => RelayFrame::Closed,
            Err(error) => RelayFrame::Refused(error.to_string()),
        };
        let _ = socket.write_all(&removed.encode());
        lock(&self.state).closed = true;
        self.closed.wake();
    }

    /// Hears who comes, and gives him the stream.
    fn begin(
        self: &Arc<Self>,
        reads: &mut ConnectionReader,
        socket: &UnixStream,
    ) -> io::Result<Begun> {
        socket.set_read_timeout(Some(HELLO))?;
        let Some(hello) = reads.next()? else {
            return Ok(Begun::Nothing);
        };
        let RelayFrame::Hello {
            version,
            token,
            stream,
            received,
        } = hello
        else {
            return Err(io::Error::other("who comes is not said"));
        };
        if version != RELAY_VERSION {
            return Err(io::Error::other(format!(
                "the relay speaks version {RELAY_VERSION}, and not {version}"
            )));
        }
        let number = {
            let mut state = lock(&self.state);
            if *state.token.get_or_insert_with(|| token.clone()) != token {
                return Err(io::Error::other("this is somebody else's session"));
            }
            if let Some(before) = state.current.take() {
                let _ = before.socket.shutdown(Shutdown::Both);
            }
            state.count += 1;
            state.since = Instant::now();
            state.current = Some(Connection {
                number: state.count,
                socket: socket.try_clone()?,
            });
            self.changed.notify_all();
            state.count
        };
        let goes_on = lock(&self.state).stream == Some(stream);
        let begun = match goes_on {
            true => self.resume(number, received).map(Some),
            false => match self.begin_stream(number, stream, reads, socket) {
                Ok(Begun::Stream(_)) => Ok(Some(0)),
                Ok(Begun::Closes(_)) => return Ok(Begun::Closes(number)),
                Ok(Begun::Nothing) => Ok(None),
                Err(error) => Err(error),
            },
        };
        let begun = begun.and_then(|begun| match begun {
            Some(received) => {
                (&*socket).write_all(&RelayFrame::Welcome(received).encode())?;
                socket.set_read_timeout(None)?;
                Ok(Begun::Stream(number))
            }
            None => Ok(Begun::Nothing),
        });
        if !matches!(begun, Ok(Begun::Stream(_))) {
            self.leave(number);
        }
        begun
    }

    /// Lets a connection go on with the stream. Says how far it was read.
    fn resume(&self, number: u64, received: u64) -> io::Result<u64> {
        // Once this is locked the connection before says nothing more.
        let mut incoming = lock(&self.incoming);
        let mut state = lock(&self.state);
        // A newer one may have come while this one waited, and has the stream.
        if !state.is_current(number) {
            return Err(io::Error::other("a newer connection has the stream"));
        }
        if !state.out.resume(received) {
            return Err(io::Error::other("what follows is not kept any more"));
        }
        state.confirm = None;
        incoming.from = number;
        incoming.confirmed = incoming.received;
        Ok(incoming.received)
    }

    /// Begins a stream with an agent of its own, once the skills have come.
    fn begin_stream(
        self: &Arc<Self>,
        number: u64,
        stream: u64,
        reads: &mut ConnectionReader,
        mut socket: &UnixStream,
    ) -> io::Result<Begun> {
        socket.write_all(&RelayFrame::Vacant.encode())?;
        let skills = self.dir.join(SKILLS);
        let mut folders: Option<IncomingFolders> = None;
        let dir = loop {
            let Some(frame) = reads.next()? else {
                return Ok(Begun::Nothing);
            };
            if frame == RelayFrame::Close {
                return Ok(Begun::Closes(number));
            }
            // Who only looks whether the stream is there changes nothing.
            let folders = match &mut folders {
                Some(folders) => folders,
                None => folders.insert(IncomingFolders::new(skills.clone())?),
            };
            lock(&self.state).since = Instant::now();
            match frame {
                RelayFrame::Begin(dir) => break dir,
                frame if folders.take(&frame)? => {}
                _ => return Err(io::Error::other("the stream was not begun")),
            }
        };
        self.end_agent();
        let dir = dir.map_or_else(|| self.dir.join(WORK), PathBuf::from);
        if !dir.is_dir() {
            let why = format!("there is no directory {} to work in", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mut agent = own_program("serve-relayed")?
            .arg(&dir)
            .arg(&skills)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut incoming = lock(&self.incoming);
        let mut state = lock(&self.state);
        if !state.is_current(number) {
            // Somebody newer begins one. It runs nothing yet.
            drop((incoming, state));
            agent.kill()?;
            return agent.wait().map(|_| Begun::Nothing);
        }
        *incoming = Incoming {
            agent: agent.stdin.take(),
            from: number,
            ..Incoming::default()
        };
        state.stream = Some(stream);
        state.out = SentStream::default();
        state.confirm = None;
        state.over = None;
        state.agent = Some(ProcessHandle::of(&agent));
        drop((incoming, state));
        if let Some(said) = agent.stdout.take() {
            let relay = Arc::clone(self);
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn(move || relay.listen(stream, agent, said))?;
        }
        Ok(Begun::Stream(number))
    }

    /// Reads what a connection says, to its end. Whether it closed all.
    fn read(&self, number: u64, reads: &mut ConnectionReader) -> bool {
        while let Ok(Some(frame)) = reads.next() {
            match frame {
                RelayFrame::Stream(bytes) => {
                    if !self.hand_over(number, &bytes) {
                        return false;
                    }
                    continue;
                }
                RelayFrame::Close => return true,
                _ => {}
            }
            let mut state = lock(&self.state);
            if !state.is_current(number) {
                return false;
            }
            state.since = Instant::now();
            if let RelayFrame::Taken(count) = frame {
                state.out.confirm(count);
                self.changed.notify_all();
            }
        }
        false
    }

    /// Gives bytes to the agent; false when this connection has nothing to say any more.
    fn hand_over(&self, number: u64, bytes: &[u8]) -> bool {
        let mut incoming = lock(&self.incoming);
        if incoming.from != number {
            return false;
        }
        // An agent that is gone is told about elsewhere.
        let written = incoming.agent.as_mut().map(|agent| agent.write_all(bytes));
        if !matches!(written, Some(Ok(()))) {
            incoming.agent = None;
        }
        incoming.received += bytes.len() as u64;
        let due = incoming.received - incoming.confirmed >= CONFIRM;
        let mut state = lock(&self.state);
        state.since = Instant::now();
        if due {
            incoming.confirmed = incoming.received;
            state.confirm = Some(incoming.received);
            self.changed.notify_all();
        }
        true
    }

    /// Writes to a connection for as long as it has the stream.
    fn write(&self, number: u64, mut socket: &UnixStream) {
        let mut told = false;
        loop {
            let state = lock(&self.state);
            let idle = |state: &mut RelayState| {
                let has = !state.out.is_given() || state.confirm.is_some();
                state.is_current(number) && !has && (told || state.over.is_none())
            };
            let state = self.changed.wait_while(state, idle);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.is_current(number) {
                return;
            }
            let mut bytes = Vec::new();
            if let Some(count) = state.confirm.take() {
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
            drop(state);
            if socket.write_all(&bytes).is_err() {
                return self.leave(number);
            }
        }
    }

    /// Keeps what the agent says until somebody has it, to its end.
    fn listen(&self, stream: u64, mut agent: Child, mut said: ChildStdout) {
        let mut buffer = vec![0; RELAY_PIECE];
        loop {
            let length = match said.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let full = |state: &mut RelayState| {
                state.stream == Some(stream) && state.out.len() >= MOST && !state.closed
            };
            let state = self.changed.wait_while(lock(&self.state), full);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if state.stream == Some(stream) {
                state.out.push(buffer.get(..length).unwrap_or_default());
                self.changed.notify_all();
            }
        }
        let how = match agent.wait() {
            Ok(status) => ended(status),
            Err(error) => error.to_string(),
        };
        let mut state = lock(&self.state);
        state.agent = None;
        if state.stream == Some(stream) {
            state.over = Some(how);
        }
        self.changed.notify_all();
    }

    /// A connection is over.
    fn leave(&self, number: u64) {
        let mut state = lock(&self.state);
        if state.is_current(number) {
            state.current = None;
            state.since = Instant::now();
        }
        self.changed.notify_all();
    }

    /// Ends the agent, and with it all that it runs.
    fn end_agent(&self) {
        // The end of its stream lets it see to the end of everything. Where it reads nothing any
        // more somebody may still be writing to it.
        if let Ok(mut incoming) = self.incoming.try_lock() {
            incoming.agent = None;
        }
        let ends = |state: &mut RelayState| state.agent.is_some();
        let waiting = self
            .changed
            .wait_timeout_while(lock(&self.state), ENDS, ends);
        let (state, late) = waiting.unwrap_or_else(PoisonError::into_inner);
        if late.timed_out()
            && let Some(agent) = &state.agent
        {
            agent.kill();
            let dying = self.changed.wait_timeout_while(state, ENDS, ends);
            drop(dying);
        }
    }

    /// The end of all.
    fn end(&self) {
        let closed = lock(&self.state).closed;
        if !closed {
            self.end_agent();
            let _ = self.remove();
        }
    }

    fn remove(&self) -> io::Result<()> {
        std::env::set_current_dir("/")?;
        removing::remove(&self.dir)
    }
}

/// How an agent ended, in words.
fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("it was ended by signal {signal}"),
        (None, code) => format!("its exit code was {}", code.unwrap_or_default()),
    }
}

/// Frames out of a connection.
struct ConnectionReader {
    socket: File,
    frames: Frames,
    buffer: Vec<u8>,
}

impl ConnectionReader {
    fn new(socket: &UnixStream) -> io::Result<Self> {
        Ok(Self {
            socket: File::from(std::os::fd::OwnedFd::from(socket.try_clone()?)),
            frames: Frames::default(),
            buffer: vec![0; RELAY_PIECE],
        })
    }

    /// The next frame; nothing at the end.
    fn next(&mut self) -> io::Result<Option<RelayFrame>> {
        loop {
            if let Some(frame) = self.frames.next_frame().map_err(io::Error::other)? {
                return RelayFrame::decode(frame)
                    .map(Some)
                    .map_err(io::Error::other);
            }
            match self.socket.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => self
                    .frames
                    .push(self.buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
