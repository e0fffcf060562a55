//! The protocol: what the bytes that cross the boundary mean.
//!
//! Every type here has a JSON Schema under `skill-sdk/abi/protocol/1/`, pinned by a test. The
//! protocol grows by operation names and by optional fields; a reader ignores fields that it
//! does not know, and no field ever changes its meaning. Nothing here does any I/O.

mod ask;
mod backend;
mod content;
mod create;
mod envelope;
mod event;
mod executor;
mod host_ops;
mod manifest;
mod mcp;
mod one_text;
mod part;
mod skill;

#[cfg(feature = "schema")]
mod schemas;

pub use ask::*;
pub use backend::*;
pub use content::*;
pub use create::*;
pub use envelope::*;
pub use event::*;
pub use executor::*;
pub use host_ops::*;
pub use manifest::*;
pub use part::*;
#[cfg(feature = "schema")]
pub use schemas::schemas;
pub use skill::*;

/// Constants, and a list of them that cannot miss one.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $value;)*

        /// All of them.
        pub const ALL: &[&str] = &[$($value),*];
    };
}

/// Names of the operations that a host asks of a plugin.
pub mod op {
    names! {
        /// A skill's `execute` callback.
        SKILL_EXECUTE = "skill.execute";
        /// A skill's `read` callback.
        SKILL_READ = "skill.read";
        /// A skill's `write` callback.
        SKILL_WRITE = "skill.write";
        /// A skill's `modify` callback.
        SKILL_MODIFY = "skill.modify";
        /// Before a typed tool's name: `skill.tool.top_keys`.
        SKILL_TOOL = "skill.tool.";
        /// Lists the tools that a skill has at run time only.
        SKILL_TOOLS = "skill.tools";
        /// Prepares an executor for a session.
        EXECUTOR_INIT = "executor.init";
        /// Runs a shell command.
        EXECUTOR_BASH = "executor.bash";
        /// Shows a file or a directory.
        EXECUTOR_VIEW = "executor.view";
        /// Writes a file.
        EXECUTOR_CREATE_FILE = "executor.create_file";
        /// Replaces one passage of a file.
        EXECUTOR_STR_REPLACE = "executor.str_replace";
        /// Ends what a session started.
        EXECUTOR_CLEANUP = "executor.cleanup";
        /// Opens a session on a backend.
        BACKEND_OPEN = "backend.open";
        /// Gives a session that is open on a backend other options.
        BACKEND_REOPEN = "backend.reopen";
        /// Asks what a backend offers a session.
        BACKEND_CATALOG = "backend.catalog";
        /// Calls a tool of a backend.
        BACKEND_CALL = "backend.call";
        /// Closes a session on a backend.
        BACKEND_CLOSE = "backend.close";
        /// Stays pending until close; its context carries what happens outside any call.
        BACKEND_WATCH = "backend.watch";
        /// Asks for fragments of a provider's request.
        BACKEND_CONTRIBUTE = "backend.contribute";
        /// Shows a provider's server items to the backend that contributed.
        BACKEND_OBSERVE = "backend.observe";
        /// Lists resources.
        RESOURCE_LIST = "resource.list";
        /// Reads a resource.
        RESOURCE_READ = "resource.read";
        /// Asks to be told when a resource changes.
        RESOURCE_SUBSCRIBE = "resource.subscribe";
        /// Takes that back.
        RESOURCE_UNSUBSCRIBE = "resource.unsubscribe";
        /// Lists prompts.
        PROMPT_LIST = "prompt.list";
        /// Fills in a prompt.
        PROMPT_GET = "prompt.get";
        /// Completes an argument of a prompt or a resource template.
        COMPLETE = "complete";
        /// Brings a file of the host's to the backend.
        FILES_PUT = "files.put";
        /// Fetches a file of the backend's to a path of the host's.
        FILES_GET = "files.get";
        /// Hands out the state of a session, for an upgrade.
        STATE_EXPORT = "state.export";
        /// Takes the state that an older version handed out.
        STATE_IMPORT = "state.import";
        /// Answers at once.
        PING = "conjure.ping";
        /// Says that the instance is about to be dropped.
        SHUTDOWN = "conjure.shutdown";
    }
}

/// Names of the operations that a plugin asks of the host.
pub mod host_op {
    names! {
        /// Reports progress of the call.
        PROGRESS = "progress";
        /// Registers a file that the call made.
        FILE = "file";
        /// Reads a value of the plugin's own namespace.
        KV_GET = "kv.get";
        /// Writes a value of the plugin's own namespace.
        KV_SET = "kv.set";
        /// Removes a value of the plugin's own namespace.
        KV_DELETE = "kv.delete";
        /// Lists the keys of the plugin's own namespace.
        KV_LIST = "kv.list";
        /// Reads a secret that the manifest names.
        SECRET_GET = "secret.get";
        /// Sends an HTTP request to a host that the manifest names.
        HTTP_SEND = "http.send";
        /// Asks the session's model.
        SAMPLE = "sample";
        /// Asks the person.
        ELICIT = "elicit";
        /// Asks for the directories that the session works in.
        ROOTS = "roots";
        /// Asks several of these at once.
        ASK = "ask";
        /// Resolves when the call is cancelled.
        CALL_CANCELLED = "call.cancelled";
        /// Resolves when `emit` has room again.
        CALL_WRITABLE = "call.writable";
    }
}

/// The most bytes that a payload may have as JSON; what is larger crosses as a file in the
/// exchange directory.
pub const INLINE_LIMIT: usize = 64 * 1024;

/// The version of the protocol, as in `skill-sdk/abi/protocol/1/`.
pub const PROTOCOL: u32 = 1;
