//! Recorded exchanges by wire, with what is known about each.
//!
//! Finds them and names their endpoints; decodes nothing.

use std::path::Path;

use conjure_core::wire::{Endpoint, Wire};

use crate::{CassetteError, Exchange, cassettes};

/// The folders of recordings, by provider.
pub const PROVIDERS: [&str; 7] = [
    "anthropic",
    "openai",
    "gemini",
    "deepseek",
    "mistral",
    "openrouter",
    "llamacpp",
];

/// A recorded exchange with what is known about it.
pub struct Recorded {
    /// The provider, as the folder is called.
    pub provider: &'static str,
    /// The cassette, with the provider in front.
    pub name: String,
    /// Place of the exchange in the cassette, from 0.
    pub index: usize,
    /// The wire that was spoken.
    pub wire: Wire,
    /// What was sent and what came back.
    pub exchange: Exchange,
}

impl Recorded {
    /// The endpoint as a host would name it.
    pub fn endpoint(&self) -> Endpoint {
        let request = self.exchange.request();
        let asked = request.get("model").and_then(|model| model.as_str());
        // Here the model stands in the URL.
        let in_path = self
            .exchange
            .when
            .path
            .split_once("models/")
            .and_then(|(_, rest)| rest.split(':').next());
        let endpoint = Endpoint::new(self.provider);
        match asked.or(in_path) {
            Some(model) => endpoint.with_model(model),
            None => endpoint,
        }
    }

    /// Whether it is the next exchange of the same cassette.
    pub fn is_after(&self, before: &Self) -> bool {
        self.name == before.name && self.index == before.index + 1 && self.wire == before.wire
    }

    /// Whether the reply is an event stream that did not fail.
    pub fn streams(&self) -> bool {
        self.exchange.then.is_stream() && self.exchange.then.status == 200
    }
}

/// All exchanges of one wire below `folder`, of every provider that speaks it.
///
/// # Errors
/// [`CassetteError`] names the file that cannot be read.
pub fn recorded(folder: &Path, wire: Wire) -> Result<Vec<Recorded>, CassetteError> {
    let mut found = Vec::new();
    for provider in PROVIDERS {
        for cassette in cassettes(&folder.join(provider))? {
            for (at, exchange) in cassette.exchanges.into_iter().enumerate() {
                if wire_of(&exchange.when.path) == Some(wire) {
                    found.push(Recorded {
                        provider,
                        name: format!("{provider}/{}", cassette.name),
                        index: at,
                        wire,
                        exchange,
                    });
                }
            }
        }
    }
    Ok(found)
}

fn wire_of(path: &str) -> Option<Wire> {
    match path {
        "/v1/messages" => Some(Wire::Anthropic),
        path if path.ends_with("/chat/completions") => Some(Wire::OpenaiChat),
        path if path.ends_with("/responses") => Some(Wire::OpenaiResponses),
        path if path.contains("enerateContent") => Some(Wire::Gemini),
        _ => None,
    }
}
