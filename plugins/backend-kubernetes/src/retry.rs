//! Requests to a cluster with a time limit: one that is busy is asked again until then.

use std::time::Duration;

use conjure_exec_agent::client::relayed::jittered;
use kube::Error as ClusterError;
use tokio::time::Instant;

/// How long a busy cluster is left alone: briefly at first, and longer later.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The reason of a cluster that could not count a pod against its quota, since others came too.
const CONFLICT: &str = "Conflict";

/// The answer to a request, or nothing where none comes in time. A cluster that stays busy gives its
/// last answer.
pub(crate) async fn ask<T, F>(
    limit: Duration,
    mut request: impl FnMut() -> F,
) -> Option<Result<T, ClusterError>>
where
    F: Future<Output = Result<T, ClusterError>>,
{
    let until = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    let mut busy = None;
    loop {
        let error = match tokio::time::timeout_at(until, request()).await {
            Ok(Err(error)) if is_busy(&error) => error,
            Ok(answer) => return Some(answer),
            Err(_) => return busy.map(Err),
        };
        let wait = retry_after(&error) + jittered(pause);
        if Instant::now() + wait >= until {
            return Some(Err(error));
        }
        busy = Some(error);
        tokio::time::sleep(wait).await;
        pause = (2 * pause).min(MAX_PAUSE);
    }
}

/// Whether the same request may be taken in a moment.
fn is_busy(error: &ClusterError) -> bool {
    let ClusterError::Api(status) = error else {
        return false;
    };
    match status.code {
        429 | 503 | 504 => true,
        409 => status.reason == CONFLICT,
        _ => false,
    }
}

/// How long the cluster wants to be left alone.
fn retry_after(error: &ClusterError) -> Duration {
    let ClusterError::Api(status) = error else {
        return Duration::ZERO;
    };
    let details = status.details.as_ref();
    let seconds = details.map_or(0, |details| details.retry_after_seconds);
    Duration::from_secs(seconds.into())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refusal(code: u16, reason: &str) -> ClusterError {
        ClusterError::Api(Status::failure("no", reason).with_code(code).boxed())
    }

    /// The answer of a cluster that refuses so often, and how often it was asked.
    async fn asked(code: u16, reason: &str, refusals: usize) -> (Result<(), u16>, usize) {
        let mut tries = 0;
        let answer = ask(Duration::from_secs(20), || {
            tries += 1;
            let answer = match tries > refusals {
                true => Ok(()),
                false => Err(refusal(code, reason)),
            };
            std::future::ready(answer)
        });
        let answer = answer.await.unwrap().map_err(|error| match error {
            ClusterError::Api(status) => status.code,
            _ => 0,
        });
        (answer, tries)
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_is_busy_is_asked_again_and_one_that_stays_so_is_told() {
        for (code, reason) in [
            (429, "TooManyRequests"),
            (503, ""),
            (504, "Timeout"),
            (409, CONFLICT),
        ] {
            assert_eq!(asked(code, reason, 2).await, (Ok(()), 3), "{code}");
            assert_eq!(asked(code, reason, 1_000).await.0, Err(code));
        }
        for (code, reason) in [(403, "Forbidden"), (409, "AlreadyExists"), (500, "")] {
            assert_eq!(asked(code, reason, 1).await, (Err(code), 1), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_none() {
        let limit = Duration::from_secs(1);
        let answer = ask(limit, std::future::pending::<Result<(), ClusterError>>).await;
        assert!(answer.is_none());
    }
}
