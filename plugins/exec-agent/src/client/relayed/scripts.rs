//! The scripts of a POSIX shell that copy an agent and go to its relay.
//!
//! No script holds a single quote: whatever shell a user has over there reads it as one word.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What begins the line after which the stream is the agent's. Whatever a shell says before it is
/// left out.
const MARK: &str = "conjure-agent=";
/// The mark as a script writes it, so that a script that is only shown has no such line.
const MARK_IN_SCRIPT: &str = "$m-agent=";
/// The most that a shell may say before that.
const MAX_PREAMBLE: usize = 64 * 1024;
/// Number of bytes of the preamble that are kept where nothing else comes.
const MAX_SHOWN_PREAMBLE: usize = 4_000;

/// Waits for the mark: what stands behind it, and what came after its line already.
///
/// # Errors
/// What was said in its place.
pub async fn read_mark(output: &mut (impl AsyncRead + Unpin)) -> Result<(String, Vec<u8>), String> {
    let mut said = Vec::new();
    loop {
        let mut lines = said.split_inclusive(|byte| *byte == b'\n');
        let mut before = 0;
        let marked = lines.find_map(|line: &[u8]| {
            before += line.len();
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n")?);
            // The line of a shell that did not end its own stands before it.
            let (_, mark) = text.split_once(MARK)?;
            Some((mark.trim().to_owned(), before))
        });
        if let Some((mark, before)) = marked {
            return Ok((mark, said.split_off(before)));
        }
        let ended = match said.len() < MAX_PREAMBLE {
            true => !matches!(output.read_buf(&mut said).await, Ok(1..)),
            false => true,
        };
        if ended {
            said.truncate(MAX_SHOWN_PREAMBLE);
            return Err(String::from_utf8_lossy(&said).trim().to_owned());
        }
    }
}

/// The script that goes to the relay of a session. An agent that is not copied there, or is not
/// what was copied any more, is said to be wanted, with the system and the processor.
#[must_use]
pub fn open_script(agent: &AgentPath<'_>, dir: &str, seconds: u64) -> String {
    on_agent(agent, &format!("open \"{dir}\" {seconds}"))
}

/// The script that goes back to the relay of a session.
#[must_use]
pub fn attach_script(agent: &AgentPath<'_>, dir: &str) -> String {
    on_agent(agent, &format!("attach \"{dir}\""))
}

/// Path and digest of an agent on a remote machine.
#[derive(Debug, Clone, Copy)]
pub struct AgentPath<'p> {
    /// The file.
    pub path: &'p str,
    /// SHA-256 of the program, in hexadecimal digits.
    pub digest: &'p str,
    /// In bytes; all that is looked at where there is no program for digests.
    pub size: usize,
}

fn on_agent(agent: &AgentPath<'_>, does: &str) -> String {
    let AgentPath { path, digest, size } = agent;
    format!(
        "cd; m=conjure; a=\"{path}\"; if [ -x \"$a\" ]; then \
         d=$(sha256sum <\"$a\" 2>/dev/null); s=$(wc -c <\"$a\"); \
         case \"${{d:-{digest}}}:$((s))\" in {digest}*:{size}) \
         echo {MARK_IN_SCRIPT}there; exec \"$a\" {does};; esac; fi; \
         echo {MARK_IN_SCRIPT}wanted $(uname -s) $(uname -m)"
    )
}

/// The script that takes the agent in, and what its exit codes say: it comes under a name of its
/// own, is tried, and has its name only then.
///
/// The standard input is read up to the agent's size: not every connection has an end of it.
#[must_use]
pub fn copy_script(agent_dir: &str, agent: &AgentPath<'_>) -> String {
    let AgentPath { path, size, .. } = agent;
    format!(
        "cd; m=conjure; umask 077; mkdir -p \"{agent_dir}\" || exit {EXIT_NO_DIRECTORY}; \
         t=\"{agent_dir}/.new-$$\"; fail() {{ rm -f \"$t\"; exit $1; }}; \
         head -c {size} >\"$t\" || fail {EXIT_NOT_WRITTEN}; chmod 700 \"$t\" || fail {EXIT_NOT_WRITTEN}; \
         [ $(wc -c <\"$t\") -eq {size} ] || fail {EXIT_INCOMPLETE}; \
         \"$t\" version >/dev/null || fail {EXIT_NOT_RUNNABLE}; \
         mv -f \"$t\" \"{path}\" || fail {EXIT_NOT_WRITTEN}; echo {MARK_IN_SCRIPT}copied"
    )
}

/// The directory of the agent cannot be made.
pub const EXIT_NO_DIRECTORY: i32 = 91;
/// The agent cannot be written.
pub const EXIT_NOT_WRITTEN: i32 = 92;
/// The agent arrived incomplete.
pub const EXIT_INCOMPLETE: i32 = 93;
/// The agent cannot be run.
pub const EXIT_NOT_RUNNABLE: i32 = 94;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_script_has_what_a_shell_would_end_it_with() {
        let agent = AgentPath {
            path: ".cache/conjure/agent-1",
            digest: "1",
            size: 7,
        };
        for script in [
            open_script(&agent, "/tmp/conjure-1", 600),
            attach_script(&agent, "/tmp/conjure-1"),
            copy_script(".cache/conjure", &agent),
        ] {
            // Nor what csh and fish understand between single quotes.
            assert!(!script.contains(['\'', '\\', '!', '\n']), "{script}");
            assert!(!script.contains(MARK), "{script}");
        }
    }
}
