//! `conjure wire`: a provider's bytes and the canonical form, one turned into the other.
//!
//! For people who debug a wire. Opens no connection and needs no key.

use std::io::{IsTerminal as _, Read};
use std::path::PathBuf;

use clap::Subcommand;
use conjure_core::wire::{Dialect, Endpoint, Wire};

use super::error::CliError;
use super::exit::Exit;
use super::{wire_decode, wire_encode};

/// Decodes a recorded reply, or encodes a conversation as a request. Opens no connection and needs
/// no key.
#[derive(clap::Args)]
pub(crate) struct WireArgs {
    #[command(subcommand)]
    verb: WireVerb,
}

#[derive(Subcommand)]
enum WireVerb {
    /// Read a recorded reply and print what it means, as one JSON object
    ///
    /// Reads the body of a reply as a provider sent it: an event stream or one JSON object, whole
    /// or cut. A body that cannot be read, or that breaks off, is told in the fields `error` and
    /// `complete`, with everything that came before.
    #[command(after_help = wire_decode::AFTER)]
    Decode(wire_decode::WireDecodeArgs),
    /// Read a conversation and print the body of the request that a provider would get
    ///
    /// The conversation passes the same repair as one that is sent: each call has its result, no
    /// part is empty, foreign thoughts are left out.
    #[command(after_help = wire_encode::AFTER)]
    Encode(wire_encode::WireEncodeArgs),
}

/// The wire, and who is at its other end.
#[derive(clap::Args)]
pub(crate) struct WireEndpointArgs {
    /// The wire: `anthropic`, `openai-responses`, `openai-chat`, `gemini`
    #[arg(long, value_name = "WIRE")]
    pub(crate) wire: Wire,
    /// The provider, as sidecars name it [default: the wire's own: `anthropic`, `openai`, `gemini`]
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// The model that is asked
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The dialect in which the provider speaks `openai-chat`: `openai`, `deepseek`, `mistral`,
    /// `openrouter`, `llamacpp`, `ollama`, `compatible` [default: that of the provider's name]
    #[arg(long, value_name = "NAME", value_parser = super::args::dialect)]
    pub(crate) dialect: Option<Box<Dialect>>,
}

impl WireEndpointArgs {
    /// The provider at the other end; `provider` and `model` are what the input says.
    ///
    /// # Errors
    /// For a dialect of a wire that has none.
    pub(crate) fn endpoint(
        &self,
        provider: Option<&str>,
        model: Option<&str>,
    ) -> Result<Endpoint, CliError> {
        let own = match self.wire {
            Wire::Anthropic => "anthropic",
            Wire::OpenaiResponses | Wire::OpenaiChat => "openai",
            Wire::Gemini => "gemini",
        };
        let provider = self.provider.as_deref().or(provider).unwrap_or(own);
        let mut endpoint = Endpoint::new(provider);
        endpoint.model = self.model.as_deref().or(model).map(str::to_owned);
        if let Some(dialect) = &self.dialect {
            super::args::check_dialect(self.wire)?;
            endpoint.dialect = Dialect::clone(dialect);
        }
        Ok(endpoint)
    }
}

pub(crate) fn run(args: WireArgs) -> Result<Exit, CliError> {
    match args.verb {
        WireVerb::Decode(args) => wire_decode::run(&args),
        WireVerb::Encode(args) => wire_encode::run(&args),
    }
}

/// The input: a file, or stdin without one or for `-`.
pub(crate) fn input(file: Option<&PathBuf>) -> Result<Box<dyn Read>, CliError> {
    match file {
        Some(path) if path.as_os_str() != "-" => {
            if path.is_dir() {
                let what = format!("the input `{}` is a directory", path.display());
                return Err(CliError::usage(what).hint("name a file in it"));
            }
            let file = conjure_config::fs::open(path);
            Ok(Box::new(file.map_err(unreadable)?))
        }
        _ if std::io::stdin().is_terminal() => {
            Err(CliError::usage("there is no input").hint("name a file, or send it to stdin"))
        }
        _ => Ok(Box::new(std::io::stdin())),
    }
}

/// Why reading the input stopped.
pub(crate) fn unreadable(error: std::io::Error) -> CliError {
    CliError::usage_from(error).context("the input cannot be read")
}
