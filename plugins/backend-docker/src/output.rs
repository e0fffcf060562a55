//! What an agent writes, as an engine or its socket brings it.

use std::pin::Pin;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use conjure_exec_agent::client::Feed;
use futures_util::{Stream, StreamExt as _};

/// Stream of the agent's output.
pub(crate) type AgentOutput = Pin<Box<dyn Stream<Item = Result<LogOutput, EngineError>> + Send>>;

/// How much of what the agent complained about is kept.
const MAX_STDERR_BYTES: usize = 2_000;

/// Hands over what comes, to its end, and says why that came about.
pub(crate) async fn read(mut output: AgentOutput, mut feed: Feed) -> String {
    let mut complaint = Vec::new();
    loop {
        let bytes = match output.next().await {
            Some(Ok(LogOutput::StdOut { message } | LogOutput::Console { message })) => message,
            Some(Ok(LogOutput::StdErr { message })) => {
                let room = MAX_STDERR_BYTES.saturating_sub(complaint.len());
                complaint
                    .extend_from_slice(message.get(..message.len().min(room)).unwrap_or_default());
                continue;
            }
            Some(Ok(LogOutput::StdIn { .. })) => continue,
            Some(Err(error)) => return format!("the stream to it broke: {error}"),
            None => return String::from_utf8_lossy(&complaint).trim().to_owned(),
        };
        if let Err(why) = feed.take(&bytes) {
            return why;
        }
    }
}
