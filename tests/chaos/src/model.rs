//! The model of a test: what it answers follows from the conversation alone, so it makes no
//! difference how often the host was killed before.

use std::time::Duration;

use conjure_mock_llm::{Message, MockError, MockLlm, Reply, Request, Script, Step};
use serde_json::json;

use crate::calls::{NATIVE, key_mark, native, shell};

/// Characters of a delta.
const DELTA: usize = 6;
/// Between two events of a reply.
const EVENT_INTERVAL: Duration = Duration::from_millis(2);

/// What a turn is asked to do, as its text says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Names the turn.
    pub(crate) key: String,
    /// Replies with calls before the last one.
    pub(crate) rounds: u64,
    /// How long a call takes, in milliseconds.
    pub(crate) ms: u64,
    /// The backend whose shell is called.
    pub(crate) backend: String,
    /// The file to which it appends, as the shell sees it.
    pub(crate) file: String,
}

impl Plan {
    /// As the person says it.
    pub(crate) fn text(&self) -> String {
        format!(
            "[turn {} {} {} {} {}]",
            self.key, self.rounds, self.ms, self.backend, self.file
        )
    }

    /// The newest in a conversation, and what came after it.
    fn newest(conversation: &str) -> Option<(Self, &str)> {
        let (_, rest) = conversation.rsplit_once("[turn ")?;
        let (plan, after) = rest.split_once(']')?;
        let mut words = plan.split(' ');
        let plan = Self {
            key: words.next()?.to_owned(),
            rounds: words.next()?.parse().ok()?,
            ms: words.next()?.parse().ok()?,
            backend: words.next()?.to_owned(),
            file: words.next()?.to_owned(),
        };
        Some((plan, after))
    }

    /// The key of a call.
    fn call(&self, round: u64, which: &str) -> String {
        format!("{}-{round}-{which}", self.key)
    }
}

/// Starts it.
///
/// # Errors
/// When there is no socket or thread.
pub(crate) fn start() -> Result<MockLlm, MockError> {
    MockLlm::start_blocking(Script::new().step(Step::answer(answer).always()))
}

fn answer(request: &Request) -> Reply {
    let conversation = request
        .messages()
        .iter()
        .map(ToString::to_string)
        .collect::<String>();
    let Some((plan, after)) = Plan::newest(&conversation) else {
        return Reply::from(Message::new().text("Nothing was asked."));
    };
    let is_open = |round: &u64| !after.contains(&key_mark(&plan.call(*round, "n")));
    let reply = match (0..plan.rounds).find(is_open) {
        Some(round) => with_calls(&plan, round),
        None => Message::new().text(format!("That was turn {}, all of it.", plan.key)),
    };
    Reply::from(reply.deltas(DELTA)).delay(EVENT_INTERVAL)
}

fn with_calls(plan: &Plan, round: u64) -> Message {
    let (noting, typing) = (plan.call(round, "n"), plan.call(round, "s"));
    let call = |key: &str| format!("call_{}", key.replace('-', "_"));
    Message::new()
        .text(format!("Round {round} of turn {} it is.", plan.key))
        .tool_use(
            call(&noting),
            format!("{NATIVE}_execute"),
            json!({ "command": native(&noting, plan.ms) }),
        )
        .tool_use(
            call(&typing),
            format!("{}_bash_tool", plan.backend),
            json!({ "command": shell(&typing, &plan.file, plan.ms) }),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_says_what_the_newest_turn_is_to_do() {
        let plan = Plan {
            key: "k2".to_owned(),
            rounds: 2,
            ms: 30,
            backend: "local".to_owned(),
            file: "calls".to_owned(),
        };
        let conversation = format!("[turn k1 1 5 local calls] and {} then", plan.text());
        assert_eq!(Plan::newest(&conversation), Some((plan, " then")));
        assert_eq!(Plan::newest("hello"), None);
    }
}
