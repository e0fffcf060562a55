//! A model that says what the test told it to say, over the real wire.
//!
//! A queue in front of the mock provider: a test that learns only later what comes next need not
//! write the whole script first. Nothing here thinks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use conjure_mock_llm::{ErrorReply, Message, MockError, MockLlm, Reply, Request, Script, Step};
use serde_json::Value;

/// A provider whose next replies stand in a queue.
#[derive(Debug)]
pub struct Model {
    mock: MockLlm,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl Model {
    /// Starts it on a free port of loopback.
    ///
    /// # Errors
    /// When there is no socket or thread.
    pub fn start() -> Result<Self, MockError> {
        let replies = Arc::new(Mutex::new(VecDeque::<Reply>::new()));
        let queue = Arc::clone(&replies);
        let script = Script::new().step(
            Step::answer(move |_| {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.pop_front().unwrap_or_else(no_reply)
            })
            .always(),
        );
        Ok(Self {
            mock: MockLlm::start_blocking(script)?,
            replies,
        })
    }

    /// Adds a reply.
    pub fn says(&self, reply: impl Into<Reply>) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        replies.push_back(reply.into());
    }

    /// Adds a reply that calls one tool.
    pub fn calls(&self, id: &str, tool: &str, input: Value) {
        self.says(Message::new().tool_use(id, tool, input));
    }

    /// Base URL of the server.
    #[must_use]
    pub fn base_url(&self) -> String {
        self.mock.base_url()
    }

    /// The server, for its gates.
    #[must_use]
    pub fn mock(&self) -> &MockLlm {
        &self.mock
    }

    /// Every request so far.
    ///
    /// # Panics
    /// When the provider would have refused one of them.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<Request>> {
        let violations = self.mock.violations();
        assert!(violations.is_empty(), "refused requests: {violations:#?}");
        self.mock.requests()
    }

    /// The newest request.
    ///
    /// # Panics
    /// As [`Model::requests`], and when there is none.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test is told at once")]
    pub fn last_request(&self) -> Arc<Request> {
        self.requests().pop().expect("the model was asked nothing")
    }
}

fn no_reply() -> Reply {
    ErrorReply::new(400)
        .message("The test told the model nothing more to say.")
        .into()
}
