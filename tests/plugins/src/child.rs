//! Runs one test of this binary in a child process, to see how the process ends.

use std::process::{Command, Stdio};

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

/// Runs the test with this full name, which must be `#[ignore]`d, in a child of its own with
/// more environment variables.
pub fn run_child(test: &str, environment: &[(&str, &str)]) -> Exit {
    let output = Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the test binary can be run");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        !text.contains("0 passed; 0 failed"),
        "there is no test `{test}`"
    );
    Exit {
        success: output.status.success(),
        signal: std::os::unix::process::ExitStatusExt::signal(&output.status),
        output: text,
    }
}
