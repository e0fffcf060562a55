//! The mock as a program, for tests of other programs: `mock-llm --script FILE [--port N]`.
//!
//! Prints its base URL as the first line and serves until it is ended.

mod commands;

use std::io::Write as _;
use std::path::PathBuf;

use clap::Parser;
use conjure_mock_llm::{MockLlm, Script};

/// A provider on loopback that answers by script.
///
/// Speaks Anthropic Messages (/v1/messages), OpenAI Responses (/v1/responses), OpenAI Chat
/// Completions (/v1/chat/completions) and Gemini (/v1beta/models/MODEL:generateContent and
/// :streamGenerateContent), and lists models (GET /v1/models, GET /v1beta/models). A request that the
/// provider would refuse is refused. The first line printed is the base URL.
#[derive(Debug, Parser)]
#[command(name = "mock-llm", version)]
struct Arguments {
    /// The script, a JSON file.
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
    /// The port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// Do what lines of JSON on standard input say, such as `{"release": "GATE"}` or `{"steps": […]}`,
    /// each answered by a line, and end with them.
    #[arg(long)]
    commands: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mock = MockLlm::start_on(Script::from_file(&arguments.script)?, arguments.port)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", mock.base_url())?;
    out.flush()?;
    drop(out);
    if arguments.commands {
        return commands::serve_commands(&mock, std::io::stdin().lock(), std::io::stdout());
    }
    mock.serve_forever();
    Ok(())
}
