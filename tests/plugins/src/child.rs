//! Runs one test of this binary in a child process, to see how the process ends.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Whether its test passed and the process ended by itself.
    pub success: bool,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Everything it wrote.
    pub output: String,
}

/// A child that has not ended after so long is killed.
const DEADLINE: Duration = Duration::from_secs(240);

/// Runs the test with this full name, which must be `#[ignore]`d, in a child of its own with
/// more environment variables.
pub fn run_child(test: &str, environment: &[(&str, &str)]) -> Exit {
    let mut child = Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary can be run");
    let output = read(child.stdout.take().expect("it is piped"));
    let errors = read(child.stderr.take().expect("it is piped"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break status;
        }
        if begun.elapsed() > DEADLINE {
            child.kill().expect("the child is ours");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = [output, errors]
        .map(|reader| reader.join().expect("the reader does not panic"))
        .concat();
    assert!(
        !text.contains("0 passed; 0 failed"),
        "there is no test `{test}`"
    );
    Exit {
        success: status.success(),
        signal: std::os::unix::process::ExitStatusExt::signal(&status),
        output: text,
    }
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
