//! The agent of a relay: its start, what goes to it and comes from it, and its end.

use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use conjure_process_tree::own_program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::connection::StreamConnection;
use super::server::{Relay, STACK_BYTES};
use super::state::{IncomingStream, RelayAgent, RelayState};
use super::stream::SentStream;
use super::{MAX_WAITING_BYTES, RELAY_PIECE};

/// How long an agent may take to end everything that it runs.
const END_TIMEOUT: Duration = Duration::from_secs(7);
/// Time limit for an agent that was killed to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of checks that an agent which takes nothing is still told anything.
const FEED_INTERVAL: Duration = Duration::from_millis(500);

/// The command that serves a session in a directory.
///
/// # Errors
/// When the system does not say where the agent's program is.
pub(super) fn agent_command(dir: &Path, skills: &Path) -> io::Result<Command> {
    let mut agent = own_program("serve-relayed")?;
    agent.arg(dir).arg(skills).current_dir(dir);
    Ok(agent)
}

impl Relay {
    /// Starts the agent of a stream by this command, in place of the one before, and gives the stream
    /// to a connection. False when somebody newer has come.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start_agent(
        self: &Arc<Self>,
        connection: StreamConnection,
        stream: u64,
        mut agent: Command,
    ) -> io::Result<bool> {
        // Once the agent runs nothing can fail any more.
        let (feeds, is_there) = channel();
        let (gives_agent, started) = channel();
        let thread = || thread::Builder::new().stack_size(STACK_BYTES);
        let relay = Arc::clone(self);
        thread().spawn(move || {
            if is_there.recv().is_ok() {
                relay.feed_input(stream);
            }
        })?;
        let relay = Arc::clone(self);
        thread().spawn(move || {
            if let Ok((agent, said)) = started.recv() {
                relay.listen(stream, agent, said);
            }
        })?;
        if !self.end_agent(Some(connection.number)) {
            return Ok(false);
        }
        let mut agent = agent
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = (agent.stdin.take(), agent.stdout.take());
        let input = pipes
            .0
            .filter(|input| rustix::io::ioctl_fionbio(input, true).is_ok());
        let mut state = self.lock();
        let (true, (Some(input), Some(said))) = (state.take_over(connection), (input, pipes.1))
        else {
            drop(state);
            agent.kill()?;
            return agent.wait().map(|_| false);
        };
        state.stream = Some(stream);
        state.outgoing = SentStream::default();
        state.incoming = IncomingStream::to(input);
        state.exit_description = None;
        state.agent = Some(RelayAgent {
            stream,
            pid: Pid::from_child(&agent),
            input_closed: false,
        });
        state.flush();
        drop(state);
        // Whoever waits at the stream before sees that it is over.
        self.changed.notify_all();
        let _ = (feeds.send(()), gives_agent.send((agent, said)));
        Ok(true)
    }

    /// Gives the agent what it did not take at once, for as long as it is told anything.
    fn feed_input(&self, stream: u64) {
        loop {
            let idle = |state: &mut RelayState| {
                state.takes_input(stream) && state.incoming.pending.is_empty()
            };
            let state = self.changed.wait_while(self.lock(), idle);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.takes_input(stream) {
                return;
            }
            let Some(input) = state.incoming.input.clone() else {
                return;
            };
            drop(state);
            let mut fds = [PollFd::new(&*input, PollFlags::OUT)];
            let _ = poll(&mut fds, Timespec::try_from(FEED_INTERVAL).ok().as_ref());
            let mut state = self.lock();
            if state.takes_input(stream) {
                state.incoming.deliver();
                state.flush();
                self.changed.notify_all();
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
                state.takes_input(stream) && state.outgoing.len() >= MAX_WAITING_BYTES
            };
            let state = self.changed.wait_while(self.lock(), full);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            // One that ends must not wait for somebody to hear it.
            if state.stream == Some(stream) && state.outgoing.len() < MAX_WAITING_BYTES {
                state
                    .outgoing
                    .push(buffer.get(..length).unwrap_or_default());
                self.flush(state);
            }
        }
        // Its number stays its own until it is waited for.
        let dead = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(
            waitid(WaitId::Pid(Pid::from_child(&agent)), dead),
            Err(Errno::INTR)
        ) {}
        let mut state = self.lock();
        let how = match agent.wait() {
            Ok(status) => describe_exit(status),
            Err(error) => error.to_string(),
        };
        // There may be another one by now.
        let is_own = |agent: &mut RelayAgent| agent.stream == stream;
        state.agent.take_if(is_own);
        if state.stream == Some(stream) {
            state.exit_description = Some(how);
            state.flush();
        }
        self.changed.notify_all();
    }

    /// Ends the agent, and with it all that it runs. False when this is the wish of a connection
    /// after which a newer one was let in.
    pub(super) fn end_agent(&self, wished_by: Option<u64>) -> bool {
        let mut state = self.lock();
        if wished_by.is_some_and(|number| state.is_before(number)) {
            return false;
        }
        let Some(agent) = &mut state.agent else {
            return true;
        };
        // The end of its stream lets it see to the end of everything.
        agent.input_closed = true;
        let agent = *agent;
        state.incoming.input = None;
        self.changed.notify_all();
        let is_there = |state: &mut RelayState| {
            let now = state.agent.as_ref();
            now.is_some_and(|now| now.stream == agent.stream)
        };
        let waiting = self
            .changed
            .wait_timeout_while(state, END_TIMEOUT, is_there);
        let (mut state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        if is_there(&mut state) {
            agent.kill();
            drop(
                self.changed
                    .wait_timeout_while(state, KILL_TIMEOUT, is_there),
            );
        }
        true
    }
}

/// Description of an agent's exit.
fn describe_exit(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("it was ended by signal {signal}"),
        (None, code) => format!("its exit code was {}", code.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::connection::{ConnectionReader, ConnectionStream};
    use super::super::frame::RelayFrame;
    use super::*;

    /// Something that is an agent as far as the relay sees, with its number.
    fn agent(relay: &Arc<Relay>, stream: u64, words: &[&str]) -> (Pid, thread::JoinHandle<()>) {
        let mut agent = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, said) = (Pid::from_child(&agent), agent.stdout.take().unwrap());
        let mut state = relay.lock();
        state.stream = Some(stream);
        state.agent = Some(RelayAgent {
            stream,
            pid,
            input_closed: false,
        });
        drop(state);
        let relay = Arc::clone(relay);
        let listening = thread::spawn(move || relay.listen(stream, agent, said));
        (pid, listening)
    }

    /// Waits until a thread of this process waits.
    fn until_waits(name: &str) {
        let begun = Instant::now();
        let waits = || {
            let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let mut stats =
                all.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            stats.any(|stat| stat.contains(&format!("({name}) S ")))
        };
        while !waits() {
            assert!(begun.elapsed() < END_TIMEOUT, "{name} does not wait");
            thread::yield_now();
        }
    }

    #[test]
    fn an_agent_that_ends_late_takes_nothing_from_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let relay = Relay::alone_in(dir.path());
        let (_, first) = agent(&relay, 1, &["sh", "-c", "sleep 0.2; echo late"]);
        let (pid, second) = agent(&relay, 2, &["sleep", "1000"]);
        first.join().unwrap();
        let state = relay.lock();
        assert_eq!(state.agent.map(|agent| agent.pid), Some(pid));
        assert_eq!(
            (state.exit_description.as_deref(), state.outgoing.len()),
            (None, 0)
        );
        state.agent.unwrap().kill();
        drop(state);
        second.join().unwrap();
        let state = relay.lock();
        assert!(state.agent.is_none());
        assert_eq!(
            state.exit_description.as_deref(),
            Some("it was ended by signal 9")
        );
    }

    #[test]
    fn an_agent_that_does_not_end_is_killed_and_no_other_wish_of_an_older_connection_counts() {
        let dir = tempfile::tempdir().unwrap();
        let relay = Relay::alone_in(dir.path());
        let (socket, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut other, b"f").unwrap();
        let (stream, first) = ConnectionStream::accept(socket, END_TIMEOUT).unwrap();
        assert_eq!(first, b"f");
        let newer = StreamConnection::new(5, &Arc::new(stream));
        assert!(relay.lock().take_over(newer));
        let (_, listening) = agent(&relay, 1, &["sleep", "1000"]);
        assert!(!relay.end_agent(Some(4)));
        assert!(relay.lock().agent.is_some());
        let begun = Instant::now();
        assert!(relay.end_agent(None));
        assert!(relay.lock().agent.is_none());
        assert!(
            begun.elapsed() < END_TIMEOUT + KILL_TIMEOUT,
            "it did not die"
        );
        listening.join().unwrap();
    }

    #[test]
    fn a_new_stream_ends_a_connection_that_waits_for_the_agent_before() {
        let dir = tempfile::tempdir().unwrap();
        let relay = Relay::alone_in(dir.path());
        let connection = |number, first: &[u8]| {
            let (socket, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            std::io::Write::write_all(&mut other, first).unwrap();
            let (stream, first) = ConnectionStream::accept(socket, END_TIMEOUT).unwrap();
            let stream = Arc::new(stream);
            let reads = ConnectionReader::new(&stream, &first);
            (StreamConnection::new(number, &stream), reads, other)
        };
        let (older, mut reads, _older) = connection(1, &RelayFrame::Question(1).encode());
        let mut state = relay.lock();
        assert!(state.take_over(older));
        // More than is kept for an agent that takes nothing.
        state.incoming.received = 2 * MAX_WAITING_BYTES as u64;
        drop(state);
        let (has_read, read) = channel();
        let reader = Arc::clone(&relay);
        let thread = thread::Builder::new().name("older-reader".to_owned());
        let reading = thread.spawn(move || has_read.send(reader.read(1, &mut reads)));
        let (newer, _, _newer) = connection(2, b"f");
        until_waits("older-reader");
        assert!(!reading.unwrap().is_finished());
        let mut silent = Command::new("sleep");
        silent.arg("1000");
        assert!(relay.start_agent(newer, 2, silent).unwrap());
        assert_eq!(read.recv_timeout(END_TIMEOUT), Ok(false));
        let agent = relay.lock().agent;
        agent.unwrap().kill();
    }
}
