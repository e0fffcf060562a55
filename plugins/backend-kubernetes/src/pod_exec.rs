//! A process in a pod: what it is given, what it says, and its end.

use std::time::Duration;

use conjure_exec_agent::client::relayed::{RelayCarrier, read_mark};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, SimplexStream, WriteHalf};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::explain::{ClusterFailure, EXEC_RIGHT, explain};
use crate::pod::CONTAINER;
use crate::retry::ask;

/// How many bytes wait in each direction.
const BUFFER_BYTES: usize = 64 * 1024;
/// How much of what is complained about is kept.
const MAX_STDERR_BYTES: u64 = 4_000;
/// How much of what comes in place of the mark is shown, in characters.
const MAX_PREAMBLE_CHARS: usize = 300;
/// How long starting a program in a pod may take.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an end is waited for, once a stream is over.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A process in a pod, which goes on for as long as somebody is connected to it.
pub(crate) struct PodProcess {
    attached: AttachedProcess,
    input: Option<WriteHalf<SimplexStream>>,
    output: ReadHalf<SimplexStream>,
    /// Reads what is complained about.
    stderr: JoinHandle<String>,
    /// Text behind the mark on its line.
    pub(crate) mark: String,
    /// What came behind that line already.
    pub(crate) buffered: Vec<u8>,
}

/// End of a process in a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessEnd {
    pub(crate) code: Option<i32>,
    /// What it complained about, or the cluster in its place.
    pub(crate) message: String,
}

/// Why a script did not come to its mark.
#[derive(Debug)]
pub(crate) enum ScriptFailure {
    Cluster(ClusterFailure),
    Ended(ProcessEnd),
}

impl PodProcess {
    /// Runs a script of the POSIX shell in a pod, writes to it what is to be written first, and waits
    /// for the mark.
    pub(crate) async fn run(
        cluster: &Cluster,
        pod: &str,
        shell: &str,
        script: &str,
        first: Option<&[u8]>,
    ) -> Result<Self, ScriptFailure> {
        let what = format!("running a program in the pod {pod}");
        let late = || ScriptFailure::Cluster(ClusterFailure::timed_out(cluster, &what));
        let params = AttachParams {
            container: Some(CONTAINER.to_owned()),
            stdin: true,
            max_stdin_buf_size: Some(BUFFER_BYTES),
            max_stdout_buf_size: Some(BUFFER_BYTES),
            max_stderr_buf_size: Some(BUFFER_BYTES),
            ..AttachParams::default()
        };
        let words = [shell, "-c", script];
        let exec = Box::pin(ask(START_TIMEOUT, || {
            Box::pin(cluster.pods.exec(pod, words, &params))
        }));
        let mut attached = match exec.await {
            Some(Ok(attached)) => attached,
            Some(Err(error)) => {
                let failure = explain(cluster, &what, EXEC_RIGHT, &error);
                return Err(ScriptFailure::Cluster(failure));
            }
            None => return Err(late()),
        };
        let input = attached.stdin();
        let (Some(output), Some(error)) = (attached.stdout(), attached.stderr()) else {
            return Err(ScriptFailure::Ended(ProcessEnd::default()));
        };
        let mut process = Self {
            attached,
            input,
            output,
            stderr: tokio::spawn(listen(error)),
            mark: String::new(),
            buffered: Vec::new(),
        };
        let begun = tokio::time::timeout(START_TIMEOUT, async {
            if let (Some(bytes), Some(input)) = (first, process.input.as_mut()) {
                // Where nobody reads it, it is said why.
                let _ = input.write_all(bytes).await;
            }
            read_mark(&mut process.output).await
        });
        match begun.await {
            Ok(Ok((mark, rest))) => {
                (process.mark, process.buffered) = (mark, rest);
                Ok(process)
            }
            Ok(Err(said)) => {
                let mut end = process.end().await;
                if end.message.is_empty() {
                    end.message = said.chars().take(MAX_PREAMBLE_CHARS).collect();
                }
                Err(ScriptFailure::Ended(end))
            }
            Err(_) => Err(late()),
        }
    }

    /// Waits for its end and says how that was; one that goes on is left.
    pub(crate) async fn end(self) -> ProcessEnd {
        let Self {
            mut attached,
            input,
            mut output,
            stderr: mut complaint,
            ..
        } = self;
        drop(input);
        let status = attached.take_status();
        let ending = async {
            // What nobody reads would hold up what comes behind it.
            let mut left = Vec::new();
            while matches!(output.read_buf(&mut left).await, Ok(1..)) {
                left.clear();
            }
            match status {
                Some(status) => status.await,
                None => None,
            }
        };
        let status = tokio::time::timeout(END_TIMEOUT, ending)
            .await
            .ok()
            .flatten();
        attached.abort();
        let said = tokio::time::timeout(END_TIMEOUT, &mut complaint).await;
        complaint.abort();
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        let (code, reason) = status.map_or((None, String::new()), |status| outcome(&status));
        ProcessEnd {
            code,
            message: match said.is_empty() {
                true => reason,
                false => said,
            },
        }
    }
}

impl RelayCarrier for PodProcess {
    type Input = WriteHalf<SimplexStream>;
    type Output = ReadHalf<SimplexStream>;

    fn streams(&mut self) -> (Option<&mut Self::Input>, &mut Self::Output) {
        (self.input.as_mut(), &mut self.output)
    }

    async fn into_stderr(self) -> String {
        self.end().await.message
    }
}

impl std::fmt::Debug for PodProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("PodProcess");
        shown.field("mark", &self.mark).finish_non_exhaustive()
    }
}

async fn listen(error: ReadHalf<SimplexStream>) -> String {
    let mut kept = Vec::new();
    let mut error = error.take(MAX_STDERR_BYTES);
    let _ = error.read_to_end(&mut kept).await;
    let mut rest = error.into_inner();
    let text = String::from_utf8_lossy(&kept);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ");
    let mut left = Vec::new();
    while matches!(rest.read_buf(&mut left).await, Ok(1..)) {
        left.clear();
    }
    text
}

/// The exit code that a status of an exec names, and what else it says.
fn outcome(status: &Status) -> (Option<i32>, String) {
    if status.status.as_deref() == Some("Success") {
        return (Some(0), String::new());
    }
    let details = status.details.clone().unwrap_or_default();
    let causes = details.causes.unwrap_or_default();
    let code = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message.as_deref()?.parse().ok());
    (code, status.message.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_exit_code_is_read_out_of_the_status() {
        let of = |status| outcome(&serde_json::from_value(status).unwrap());
        assert_eq!(of(json!({ "status": "Success" })), (Some(0), String::new()));
        let failure = json!({
            "status": "Failure",
            "message": "command terminated with non-zero exit code",
            "reason": "NonZeroExitCode",
            "details": { "causes": [{ "reason": "ExitCode", "message": "93" }] },
        });
        assert_eq!(of(failure).0, Some(93));
        let failure = json!({ "status": "Failure", "message": "no such file: /bin/sh" });
        assert_eq!(of(failure), (None, "no such file: /bin/sh".to_owned()));
    }
}
