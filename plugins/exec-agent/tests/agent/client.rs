//! A client of one agent, with a working directory and a skill of its own.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use conjure_exec_agent::error::AgentError;
use conjure_exec_agent::files::DirectoryLocation;
use conjure_exec_agent::frame::{AgentFrame, AgentFrames};
use conjure_exec_agent::message::{AgentReply, AgentRequest, CommandResult, ShellCommand};

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Agent {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) process: Child,
    input: Option<ChildStdin>,
    frames: Receiver<(u32, AgentFrame)>,
    next: u32,
    /// What came for calls that were not asked about yet.
    waiting: HashMap<u32, Vec<AgentFrame>>,
    /// Whether output is paid for at once.
    pub(crate) pays: bool,
}

/// What came of a command.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) ended: CommandResult,
}

impl Ran {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl Agent {
    pub(crate) fn new() -> Self {
        Self::quiet(600)
    }

    pub(crate) fn quiet(seconds: u32) -> Self {
        let agent = Command::new(env!("CARGO_BIN_EXE_conjure-exec-agent"));
        Self::started(agent, seconds, None)
    }

    /// One that is started with this, in directories that are this user's.
    pub(crate) fn started(mut agent: Command, seconds: u32, user: Option<u32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "skills/analyzer/scripts", "elsewhere"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("skills/analyzer/SKILL.md"), "a skill\n").unwrap();
        fs::write(dir.path().join("elsewhere/secret"), "s").unwrap();
        for name in ["", "work"] {
            std::os::unix::fs::chown(dir.path().join(name), user, None).unwrap();
        }
        let mut process = agent
            .args(["serve", &seconds.to_string()])
            .args([dir.path().join("work"), dir.path().join("skills")])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = process.stdout.take().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let (mut cutter, mut buffer) = (AgentFrames::default(), vec![0; 64 * 1024]);
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                cutter.push(&buffer[..length]);
                while let Some(frame) = cutter.next_frame().unwrap() {
                    let _ = sender.send(frame);
                }
            }
        });
        let mut agent = Self {
            input: process.stdin.take(),
            dir,
            process,
            frames,
            next: 1,
            waiting: HashMap::new(),
            pays: true,
        };
        let ready = AgentFrame::Ready {
            version: conjure_exec_agent::VERSION,
            location: DirectoryLocation::of(&agent.path("work")).text(),
        };
        assert_eq!(agent.frame(0), ready);
        agent
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    pub(crate) fn send(&mut self, call: u32, frame: &AgentFrame) {
        let bytes = frame.encode(call);
        let input = self.input.as_mut().unwrap();
        input.write_all(&bytes).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn begin(&mut self, request: &AgentRequest) -> u32 {
        let call = self.next;
        self.next += 1;
        self.send(call, &AgentFrame::Call(request.encode()));
        call
    }

    /// The next frame of a call.
    pub(crate) fn frame(&mut self, call: u32) -> AgentFrame {
        self.frame_within(call, LIMIT)
            .expect("the agent says nothing")
    }

    pub(crate) fn frame_within(&mut self, call: u32, limit: Duration) -> Option<AgentFrame> {
        if let Some(waiting) = self.waiting.get_mut(&call)
            && !waiting.is_empty()
        {
            return Some(waiting.remove(0));
        }
        loop {
            match self.frames.recv_timeout(limit) {
                Ok((number, frame)) if number == call => return Some(frame),
                Ok((number, frame)) => self.waiting.entry(number).or_default().push(frame),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the agent is gone"),
            }
        }
    }

    /// Waits for a call's answer, with its data.
    pub(crate) fn answer(&mut self, call: u32) -> (Result<AgentReply, AgentError>, Vec<u8>) {
        let mut data = Vec::new();
        loop {
            match self.frame(call) {
                AgentFrame::Data(bytes) => {
                    self.send(call, &AgentFrame::Credit(bytes.len().try_into().unwrap()));
                    data.extend(bytes);
                }
                AgentFrame::End | AgentFrame::Credit(_) => {}
                AgentFrame::Reply(bytes) => {
                    return (AgentReply::decode(&bytes).map_err(AgentError::from), data);
                }
                AgentFrame::Fault(error) => return (Err(error), data),
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn ask(&mut self, request: &AgentRequest) -> Result<AgentReply, AgentError> {
        let call = self.begin(request);
        self.answer(call).0
    }

    /// Writes a file.
    pub(crate) fn create(&mut self, path: &str, text: &[u8]) -> Result<AgentReply, AgentError> {
        self.fill(&AgentRequest::Create { path: path.into() }, text)
    }

    pub(crate) fn fill(
        &mut self,
        request: &AgentRequest,
        bytes: &[u8],
    ) -> Result<AgentReply, AgentError> {
        let call = self.begin(request);
        for piece in bytes.chunks(conjure_exec_agent::PIECE) {
            self.send(call, &AgentFrame::Data(piece.to_vec()));
        }
        self.send(call, &AgentFrame::End);
        self.answer(call).0
    }

    pub(crate) fn start(&mut self, command: &str, time_ms: u64) -> u32 {
        self.begin(&AgentRequest::Bash(ShellCommand {
            shell: "/bin/sh".into(),
            command: command.into(),
            env: vec![("GIVEN".into(), "yes".into())],
            time_ms,
            grace_ms: 200,
            ..ShellCommand::default()
        }))
    }

    /// Waits for a command's end.
    pub(crate) fn ran(&mut self, call: u32) -> Result<Ran, AgentError> {
        let mut ran = Ran::default();
        loop {
            let (bytes, to) = match self.frame(call) {
                AgentFrame::Stdout(bytes) => (bytes, &mut ran.stdout),
                AgentFrame::Stderr(bytes) => (bytes, &mut ran.stderr),
                AgentFrame::Reply(bytes) => {
                    let Ok(AgentReply::Bash(ended)) = AgentReply::decode(&bytes) else {
                        panic!("no reply of a command");
                    };
                    ran.ended = ended;
                    return Ok(ran);
                }
                AgentFrame::Fault(error) => return Err(error),
                other => panic!("{other:?}"),
            };
            to.extend(&bytes);
            if self.pays {
                self.send(call, &AgentFrame::Credit(bytes.len().try_into().unwrap()));
            }
        }
    }

    pub(crate) fn bash(&mut self, command: &str) -> Ran {
        let call = self.start(command, 15_000);
        self.ran(call).unwrap()
    }

    /// Ends the stream.
    pub(crate) fn hang_up(&mut self) {
        self.input = None;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
