//! Where the recordings are, and what it means when they are not there.

use std::path::PathBuf;

use conjure_core::wire::{Endpoint, Wire};
use conjure_wire_tests::{Cassette, Exchange, VARIABLE, cassettes};

/// The folders of recordings, by provider.
const PROVIDERS: [&str; 7] = [
    "anthropic",
    "openai",
    "gemini",
    "deepseek",
    "mistral",
    "openrouter",
    "llamacpp",
];

/// A recorded exchange with what is known about it.
pub(crate) struct Recorded {
    /// The provider, as the folder is called.
    pub(crate) provider: &'static str,
    /// The cassette, with the provider in front.
    pub(crate) name: String,
    /// Its place in the cassette.
    pub(crate) at: usize,
    pub(crate) wire: Wire,
    pub(crate) exchange: Exchange,
}

impl Recorded {
    /// The endpoint as a host would name it.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let asked = self.exchange.request()["model"].as_str().map(str::to_owned);
        // Here the model stands in the URL.
        let in_path = self
            .exchange
            .when
            .path
            .split_once("models/")
            .and_then(|(_, rest)| rest.split(':').next().map(str::to_owned));
        let endpoint = Endpoint::new(self.provider);
        match asked.or(in_path) {
            Some(model) => endpoint.with_model(model),
            None => endpoint,
        }
    }

    /// Whether it is the next exchange of the same cassette.
    pub(crate) fn follows(&self, before: &Self) -> bool {
        self.name == before.name && self.at == before.at + 1 && self.wire == before.wire
    }
}

/// All exchanges of one wire, of every provider that speaks it; none where nobody said where the
/// recordings are. Fails when there are none of it.
pub(crate) fn exchanges(wire: Wire) -> Option<Vec<Recorded>> {
    let mut found = Vec::new();
    for provider in PROVIDERS {
        for cassette in recordings(provider)? {
            for (at, exchange) in cassette.exchanges.into_iter().enumerate() {
                if wire_of(&exchange.when.path) == Some(wire) {
                    found.push(Recorded {
                        provider,
                        name: format!("{provider}/{}", cassette.name),
                        at,
                        wire,
                        exchange,
                    });
                }
            }
        }
    }
    assert!(!found.is_empty(), "no recorded exchange of {wire}");
    Some(found)
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

/// The recordings of one wire, or none where nobody said where they are: then that is told as left out.
pub(crate) fn recordings(wire: &str) -> Option<Vec<Cassette>> {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) else {
        println!("LEFT OUT: cassettes: {VARIABLE} is not set");
        return None;
    };
    let folder = PathBuf::from(folder).join(wire);
    let cassettes = cassettes(&folder).unwrap();
    assert!(
        !cassettes.is_empty(),
        "no recordings in {}",
        folder.display()
    );
    Some(cassettes)
}
