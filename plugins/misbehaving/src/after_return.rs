//! What goes on when a call is over: threads that stay, and what the host tells them.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use conjure_skill_sdk::abi::EmitKind;
use conjure_skill_sdk::protocol::{Empty, KvKey, host_op};
use conjure_skill_sdk::{Cx, Error, Result};
use serde_json::Value;

/// What came of calls that were over, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct AfterReturn(Arc<Mutex<Vec<String>>>);

impl AfterReturn {
    /// Asks for a host operation once the call is over.
    pub(crate) fn ask(&self, cx: &Cx) -> Result<()> {
        self.run_after_return(cx, |cx| {
            let key = KvKey { key: "any".into() };
            match cx.host::<_, Value>(host_op::KV_GET, &key) {
                Ok(reply) => format!("host-op: the host answered {reply}"),
                Err(error) => format!("host-op: fault {}: {error}", error.code()),
            }
        })
    }

    /// Emits once the call is over.
    pub(crate) fn emit(&self, cx: &Cx) -> Result<()> {
        self.run_after_return(cx, |cx| {
            format!("emit: {:?}", cx.try_emit(EmitKind::Stdout, b"too late"))
        })
    }

    pub(crate) fn list(&self) -> String {
        let outcomes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.join("\n")
    }

    fn run_after_return(
        &self,
        cx: &Cx,
        act: impl FnOnce(&Cx) -> String + Send + 'static,
    ) -> Result<()> {
        let (outcomes, cx) = (Arc::clone(&self.0), cx.clone());
        spawn(move || {
            // Resolves when the call is over.
            let _ = cx.host::<_, Empty>(host_op::CALL_CANCELLED, &Empty {});
            let outcome = act(&cx);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.push(outcome);
        })
    }
}

/// Starts a thread that nobody waits for.
pub(crate) fn spawn(run: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name("misbehaving".into())
        .spawn(run)
        .map(drop)
        .map_err(Error::from)
}

/// Never returns.
pub(crate) fn park_forever() -> ! {
    loop {
        thread::park();
    }
}
