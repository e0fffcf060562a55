//! The protocol: what the bytes that cross the boundary mean.
//!
//! Every type here has a JSON Schema under `skill-sdk/abi/protocol/1/`, pinned by a test. The
//! protocol grows by operation names and by optional fields; a reader ignores fields that it
//! does not know, and no field ever changes its meaning. Nothing here does any I/O.

mod backend;
mod content;
mod create;
mod envelope;
mod event;
mod executor;
mod host_ops;
mod manifest;
mod skill;

#[cfg(feature = "schema")]
mod schemas;

pub use backend::*;
pub use content::*;
pub use create::*;
pub use envelope::*;
pub use event::*;
pub use executor::*;
pub use host_ops::*;
pub use manifest::*;
#[cfg(feature = "schema")]
pub use schemas::schemas;
pub use skill::*;

/// Names of the operations that a host asks of a plugin.
pub mod op {
    /// A skill's `execute` callback.
    pub const SKILL_EXECUTE: &str = "skill.execute";
    /// A skill's `read` callback.
    pub const SKILL_READ: &str = "skill.read";
    /// A skill's `write` callback.
    pub const SKILL_WRITE: &str = "skill.write";
    /// A skill's `modify` callback.
    pub const SKILL_MODIFY: &str = "skill.modify";
    /// Before a typed tool's name: `skill.tool.top_keys`.
    pub const SKILL_TOOL: &str = "skill.tool.";
    /// Prepares an executor for a session.
    pub const EXECUTOR_INIT: &str = "executor.init";
    /// Runs a shell command.
    pub const EXECUTOR_BASH: &str = "executor.bash";
    /// Shows a file or a directory.
    pub const EXECUTOR_VIEW: &str = "executor.view";
    /// Writes a file.
    pub const EXECUTOR_CREATE_FILE: &str = "executor.create_file";
    /// Replaces one passage of a file.
    pub const EXECUTOR_STR_REPLACE: &str = "executor.str_replace";
    /// Ends what a session started.
    pub const EXECUTOR_CLEANUP: &str = "executor.cleanup";
    /// Opens a session on a backend.
    pub const BACKEND_OPEN: &str = "backend.open";
    /// Asks what a backend offers a session.
    pub const BACKEND_CATALOG: &str = "backend.catalog";
    /// Calls a tool of a backend.
    pub const BACKEND_CALL: &str = "backend.call";
    /// Closes a session on a backend.
    pub const BACKEND_CLOSE: &str = "backend.close";
    /// Stays pending until close; its context carries what happens outside any call.
    pub const BACKEND_WATCH: &str = "backend.watch";
    /// Asks for fragments of a provider's request.
    pub const BACKEND_CONTRIBUTE: &str = "backend.contribute";
    /// Shows a provider's server items to the backend that contributed.
    pub const BACKEND_OBSERVE: &str = "backend.observe";
    /// Lists resources.
    pub const RESOURCE_LIST: &str = "resource.list";
    /// Reads a resource.
    pub const RESOURCE_READ: &str = "resource.read";
    /// Lists prompts.
    pub const PROMPT_LIST: &str = "prompt.list";
    /// Fills in a prompt.
    pub const PROMPT_GET: &str = "prompt.get";
    /// Completes an argument of a prompt or a resource template.
    pub const COMPLETE: &str = "complete";
    /// Brings a file of the host's to the backend.
    pub const FILES_PUT: &str = "files.put";
    /// Fetches a file of the backend's to a path of the host's.
    pub const FILES_GET: &str = "files.get";
    /// Hands out the state of a session, for an upgrade.
    pub const STATE_EXPORT: &str = "state.export";
    /// Takes the state that an older version handed out.
    pub const STATE_IMPORT: &str = "state.import";
    /// Answers at once.
    pub const PING: &str = "conjure.ping";
    /// Says that the instance is about to be dropped.
    pub const SHUTDOWN: &str = "conjure.shutdown";
}

/// Names of the operations that a plugin asks of the host.
pub mod host_op {
    /// Reports progress of the call.
    pub const PROGRESS: &str = "progress";
    /// Registers a file that the call made.
    pub const FILE: &str = "file";
    /// Reads a value of the plugin's own namespace.
    pub const KV_GET: &str = "kv.get";
    /// Writes a value of the plugin's own namespace.
    pub const KV_SET: &str = "kv.set";
    /// Removes a value of the plugin's own namespace.
    pub const KV_DELETE: &str = "kv.delete";
    /// Lists the keys of the plugin's own namespace.
    pub const KV_LIST: &str = "kv.list";
    /// Reads a secret that the manifest names.
    pub const SECRET_GET: &str = "secret.get";
    /// Sends an HTTP request to a host that the manifest names.
    pub const HTTP_SEND: &str = "http.send";
    /// Asks the session's model.
    pub const SAMPLE: &str = "sample";
    /// Asks the person.
    pub const ELICIT: &str = "elicit";
    /// Asks for the directories that the session works in.
    pub const ROOTS: &str = "roots";
    /// Resolves when the call is cancelled.
    pub const CALL_CANCELLED: &str = "call.cancelled";
    /// Resolves when `emit` has room again.
    pub const CALL_WRITABLE: &str = "call.writable";
}

/// The most bytes that a payload may have as JSON; what is larger crosses as a file in the
/// exchange directory.
pub const INLINE_LIMIT: usize = 64 * 1024;

/// The version of the protocol, as in `skill-sdk/abi/protocol/1/`.
pub const PROTOCOL: u32 = 1;
