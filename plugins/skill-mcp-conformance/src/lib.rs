//! What the official MCP conformance suite expects a server to have, as a native skill.
//!
//! Names, texts and schemas are the suite's (0.2.0-alpha.12), for its requirement sets 2025-11-25
//! and 2026-07-28. Serve it with `[routing] prefix = "none"`, for the suite calls tools by their
//! plain names. Every tool is stateless, so that a call which waits for an answer blocks no other.
//! How questions reach a client, as requests or as results that ask for input, is the host's.

mod changes;
mod content;
mod lists;
mod questions;
mod rounds;
#[cfg(test)]
mod tests;

use conjure_skill_sdk::protocol::Permissions;
use conjure_skill_sdk::{Skill, ToolOptions, export_skill};

fn skill() -> Skill {
    let skill = Skill::new(
        "mcp-conformance",
        "The tools, resources and prompts that the MCP conformance suite calls.",
    )
    .permissions(Permissions {
        sample: true,
        ..Permissions::default()
    });
    let skill = content::register(skill);
    let skill = questions::register(skill);
    let skill = rounds::register(skill);
    let skill = changes::register(skill);
    lists::register(skill)
}

/// Nothing depends on an earlier call, and nothing is changed that matters.
fn stateless() -> ToolOptions {
    ToolOptions::new().read_only().stateless()
}

export_skill!(skill, name = "mcp-conformance");
