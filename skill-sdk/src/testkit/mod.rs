//! Drives a plugin through the real ABI without a host.
//!
//! [`TestHost`] answers what a host would; [`Plugin`] is an instance on it. A plugin runs
//! [directly](Transport::Direct) or [behind a pipe](Transport::Pipe), with equal results.
//! Libraries are not loaded here: that takes `unsafe` and is the host's business. What the host
//! loads is a [`PluginRoot`], which [`TestHost::run`] takes.
//!
//! ```
//! use conjure_skill_sdk::protocol::Execute;
//! use conjure_skill_sdk::{Skill, testkit::Plugin};
//! use serde_json::json;
//!
//! let greeter = || {
//!     Skill::new("greeter", "Greets people")
//!         .execute("NAME", |_cx, call: Execute| format!("Hello, {}!", call.command))
//! };
//! let plugin = Plugin::linked(greeter)?;
//! let outcome = plugin.call("skill.execute", json!({ "command": "Ada" }));
//! assert_eq!(outcome.text(), "Hello, Ada!");
//! # Ok::<(), conjure_skill_sdk::Error>(())
//! ```
//!
//! What takes longer than 30 s fails, so that a test never hangs.

mod channel;
mod host;
mod operations;
mod outcome;
mod plugin;
mod transcript;

use std::time::Duration;

use conjure_abi::{CallContext, Fault, PluginObject};

use crate::error::to_fault;
use crate::export::{Exported, create_linked, manifest_linked};
use crate::frames::PluginRoot;

pub use channel::LogLine;
pub use host::{TestHost, TestHostBuilder};
pub use outcome::Outcome;
pub use plugin::{Calls, Plugin, RunningCall};
pub use transcript::Message;

/// How a plugin is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Through the ABI's object, as in the host's own process.
    #[default]
    Direct,
    /// Through frames over an in-memory pipe, as in a process of its own.
    Pipe,
}

impl Transport {
    /// Both, for tests that compare them.
    pub const BOTH: [Self; 2] = [Self::Direct, Self::Pipe];
}

/// Deadline of everything that the kit waits for.
const DEADLINE: Duration = Duration::from_secs(30);

/// The version that a linked plugin's manifest gets.
const LINKED_VERSION: &str = "0.0.0";

/// A plugin that is linked into the test.
struct Linked<F>(F);

impl<E, F> PluginRoot for Linked<F>
where
    E: Exported,
    F: Fn() -> E + Send + Sync + 'static,
{
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        let manifest = manifest_linked(&self.0, LINKED_VERSION).map_err(to_fault)?;
        serde_json::to_vec(&manifest).map_err(|error| to_fault(error.into()))
    }

    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault> {
        create_linked(&self.0, create, cx).map_err(to_fault)
    }
}
