//! Providers: who answers a model request, and the saved auths that they ask with.
//!
//! One trait, [`Provider`], for the built-in ones and for those that an embedding program brings. A
//! provider gets a canonical request and gives back a canonical response; how it talks is its own
//! affair. [`HttpProvider`] does it for all vendors over HTTP, with the wires of `conjure-core`.
//! [`auths`] keeps credentials sealed in the database. Touches the network, the environment, the
//! database of saved auths and the system's keyring; knows no session that runs and no plugin.
//! Begin at `known_providers.rs` and `http_provider.rs`.

mod address;
pub mod auths;
mod credentials;
mod http;
mod http_provider;
mod known_providers;
mod model_facts;
mod model_list;
mod piece_deadline;
mod read_pace;
mod remote_files;
mod remote_skills;
mod reply;
mod reply_size;
mod reply_thread;
mod scripted;
mod sse_reply;
mod token_end;
mod tool_walk;

use futures_util::future::BoxFuture;

pub use address::AddressError;
pub(crate) use address::{check_base_url, redacted_base_url};
pub use http::{HttpClients, HttpOptions, Retry};
pub use http_provider::{HttpProvider, HttpProviderError, target};
pub use known_providers::{
    BUILT_IN_PROVIDERS, KNOWN_PROVIDERS, KnownProvider, UnusableProvider, unopened_auth_message,
    wire_and_endpoint,
};
pub use model_facts::{ModelBook, ModelBookError, ModelFacts};
pub use model_list::ListedModel;
pub use read_pace::ReadTicks;
pub use remote_files::RemoteFile;
pub use remote_skills::{RemoteSkill, RemoteVersion, SkillPackage, SkillUpload};
pub use reply::ReplySink;
pub use reply_size::json_size;
pub use reply_thread::rest_until;
pub use scripted::{Script, ScriptError, Scripted};
pub use token_end::TokenError;
pub use tool_walk::ToolWalk;

use conjure_core::chat::Response;
use conjure_core::repair::RepairTarget;
use conjure_core::request::ModelRequest;
use conjure_core::wire::Endpoint;

use conjure_config::AuthName;

/// Answers model requests.
///
/// Dropping the future ends the request; what went through the sink by then is kept. Where it is carried by
/// another thread, a piece may come through the sink for a moment after that.
pub trait Provider: Send + Sync + 'static {
    /// The provider's name, as sidecars, sessions and prices know it, such as `anthropic`.
    fn name(&self) -> &str;

    /// Answers one request. Deltas go through the sink as they come; the whole reply is returned.
    fn respond<'a>(
        &'a self,
        request: &'a ModelRequest,
        sink: &'a ReplySink,
    ) -> BoxFuture<'a, Result<Response, ProviderError>>;

    /// Target of the repair that a conversation needs before it is sent to this model: the wire, and
    /// whether the model can look at images and files. By default what the provider's name implies.
    fn target(&self, model: &str) -> RepairTarget {
        RepairTarget::new(self.name(), model)
    }

    /// How the wire of the target is spoken there; used to tell what a switch would change.
    fn endpoint(&self, model: &str) -> Endpoint {
        Endpoint::new(self.name()).with_model(model)
    }

    /// The saved auth that the provider asks with, if it uses one.
    fn auth(&self) -> Option<&AuthName> {
        None
    }

    /// What a person should know before the first answer, such as that a script plays the model.
    fn notice(&self) -> Option<String> {
        None
    }
}

/// A request that gave no whole reply.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct ProviderError {
    /// The provider to blame.
    pub provider: String,
    /// A word for programs: `auth`, `rate_limited`, `overloaded`, `bad_request`, `not_found`,
    /// `too_large`, `network`, `timeout`, `cut`, `protocol`, `api`, `script`.
    pub kind: String,
    /// What failed, why, and what to do.
    pub message: String,
    /// What had come of the reply.
    pub partial: Option<Box<Response>>,
}

impl ProviderError {
    /// An error without a partial reply.
    pub fn new(
        provider: impl Into<String>,
        kind: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            provider: provider.into(),
            kind: kind.into(),
            message: message.into(),
            partial: None,
        }
    }
}
