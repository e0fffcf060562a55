//! A server's standard input: whole lines, also when whoever writes one goes away in the middle.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::Mutex;

/// A server's standard input, written line by line. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct ServerInput(Arc<Mutex<InputPipe>>);

#[derive(Debug)]
struct InputPipe {
    /// There until its end is to tell the server to end.
    pipe: Option<ChildStdin>,
    /// The line under way, and how much of it the pipe has taken.
    line: Vec<u8>,
    written: usize,
}

impl ServerInput {
    pub(super) fn new(pipe: ChildStdin) -> Self {
        Self(Arc::new(Mutex::new(InputPipe {
            pipe: Some(pipe),
            line: Vec::new(),
            written: 0,
        })))
    }

    /// Writes a line. When this is dropped in the middle of it, the rest goes before the next one.
    ///
    /// # Errors
    /// The system's; `BrokenPipe` when it is closed.
    pub(crate) async fn write(&self, line: Vec<u8>) -> io::Result<()> {
        let mut open = self.0.lock().await;
        open.finish().await?;
        open.line = line;
        open.written = 0;
        open.finish().await
    }

    /// Closes it, unless somebody writes: a write that the server does not take ends with its
    /// process.
    pub(super) fn close(&self) {
        if let Ok(mut open) = self.0.try_lock() {
            open.pipe = None;
        }
    }
}

impl InputPipe {
    async fn finish(&mut self) -> io::Result<()> {
        let pipe = self.pipe.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        while let Some(rest) = self
            .line
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            // Nothing was taken when this future is dropped here.
            match pipe.write(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.written += count,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_line_that_was_given_up_in_the_middle_is_still_whole() {
        let mut cat = Command::new("cat");
        let cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cat = cat.kill_on_drop(true).spawn().unwrap();
        let input = ServerInput::new(cat.stdin.take().unwrap());
        let mut output = cat.stdout.take().unwrap();
        // More than both pipes and the program hold.
        let mut long = vec![b'x'; 1024 * 1024];
        long.push(b'\n');
        let written = input.write(long.clone());
        let given_up = tokio::time::timeout(Duration::from_millis(50), written).await;
        assert!(given_up.is_err());
        let writer = tokio::spawn({
            let input = input.clone();
            async move { input.write(b"next\n".to_vec()).await }
        });
        let mut read = vec![0; long.len() + 5];
        output.read_exact(&mut read).await.unwrap();
        writer.await.unwrap().unwrap();
        assert_eq!(read.split_off(long.len()), b"next\n");
        assert!(read == long);
        input.close();
        let error = input.write(b"late\n".to_vec()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
