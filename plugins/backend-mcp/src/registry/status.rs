//! How an entry is, for people and programs: in the `meta` of the catalog.

use serde::Serialize;

use crate::listing::Quarantined;

/// Status of an entry, for people.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Status {
    pub(crate) server: String,
    /// `idle`, `starting`, `ready`, `backoff`, `needs_auth`, `failed` or `closed`.
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) why: String,
    /// While it is tried again: the state that the last try ended in, to which `why` belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_as: Option<&'static str>,
    /// Whether there is no program that could be started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_program: bool,
    /// Whether there are credentials, which only do not give a right (a scope) that it wants.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) lacks_right: bool,
    /// `stdio` or `http`.
    pub(crate) transport: &'static str,
    /// Over HTTP: `configured` credentials, `logged_in`, or `logged_out`, which is no trouble for
    /// a server that wants no login.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth: Option<&'static str>,
    /// `required` once a stateful tool was advertised or invoked, else `optional`.
    pub(crate) session_mode: &'static str,
    /// Whether sessions share the connection.
    pub(crate) shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) era: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<u64>,
    /// The server and the generation that stateful calls are pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    /// The file of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<String>,
    /// How long its newest connection took to be made, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_ms: Option<u64>,
    /// Pieces of output that were no messages.
    pub(crate) skipped: u64,
    /// Whether it is ready and its lists are still being read; what is said of its tools is from
    /// an earlier time then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) listing: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) list_error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) quarantined: Vec<Quarantined>,
    /// The server's instructions for its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<String>,
    /// The last lines of its standard error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stderr: Vec<String>,
}
