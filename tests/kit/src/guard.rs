//! Ends what a test began, also when the test itself is ended from outside.
//!
//! A shell waits at a pipe that this process holds. The pipe ends with this process, whatever ends
//! that: a signal, a panic, `kill -9`. Then the shell does what it was told.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// What is done at the end of this process, or once this is dropped.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// `script` is for a shell and has `arguments` as `$1`, `$2` and so on; it runs as `user`, where
    /// one is named.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn new(script: &str, arguments: &[&str], user: Option<u32>) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell
            .arg("-c")
            // A signal to the whole group of a terminal is not for it: it has to see to the rest.
            .arg(format!("trap '' HUP INT TERM; read -r _; {script}"))
            .arg("guard")
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(user) = user {
            shell.uid(user);
        }
        shell.spawn().map(Self)
    }

    /// Nothing is left to do.
    pub fn disarm(mut self) {
        let _ = self.0.kill();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_at_the_end_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done");
        let path = path.to_str().unwrap();
        let guard = Guard::new("echo $2 >\"$1\"", &[path, "two"], None).unwrap();
        assert!(std::fs::read(path).is_err());
        drop(guard);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "two\n");
    }

    #[test]
    fn what_is_disarmed_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("done");
        let guard = Guard::new("echo >\"$1\"", &[path.to_str().unwrap()], None).unwrap();
        guard.disarm();
        assert!(!path.exists());
    }
}
