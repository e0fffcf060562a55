//! How turns of a server ended. A server knows that before the database does, where that takes
//! nothing for a while.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use conjure_store::RunState;
use reqwest::Method;
use serde::Deserialize;

use super::{RemoteServer, ServerError, encode_segment};

/// How long one request waits for the end of a turn, in seconds.
const WAIT_SECONDS: u64 = 30;
/// Between two requests: a turn that asks for something is answered at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// End of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTurn {
    /// Final state of the turn.
    pub state: RunState,
    /// Reason of a failure.
    pub error: Option<String>,
}

/// A turn, as the API shows it.
#[derive(Deserialize)]
struct TurnStateBody {
    state: String,
    error: Option<String>,
}

impl TurnStateBody {
    /// End of the turn; `None` while it has not ended.
    fn end(self) -> Option<EndedTurn> {
        let state = RunState::of_word(&self.state).filter(|state| state.is_over())?;
        Some(EndedTurn {
            state,
            error: self.error,
        })
    }
}

impl RemoteServer {
    /// Waits until a turn is over, as the server has it.
    ///
    /// # Errors
    /// [`ServerError`].
    #[boxed]
    pub async fn ended_turn(&self, turn: &str) -> Result<EndedTurn, ServerError> {
        let path = format!("turns/{}?wait={WAIT_SECONDS}", encode_segment(turn));
        loop {
            let shown = self.ask(Method::GET, &path, None).await?;
            if let Some(ended) = self.read::<TurnStateBody>(&shown)?.end() {
                return Ok(ended);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_ended_when_its_state_is_an_end() {
        let ended = |shown: &str| serde_json::from_str::<TurnStateBody>(shown).unwrap().end();
        assert_eq!(ended(r#"{"id":"t","state":"running","error":null}"#), None);
        assert_eq!(ended(r#"{"id":"t","state":"queued","error":null}"#), None);
        let interrupted = ended(r#"{"id":"t","state":"interrupted","error":"no space"}"#);
        let is_meant = EndedTurn {
            state: RunState::Interrupted,
            error: Some("no space".to_owned()),
        };
        assert_eq!(interrupted, Some(is_meant));
    }
}
