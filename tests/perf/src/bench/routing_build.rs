//! Building the routing table of a session with very many tools.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Result;
use conjure_core::routing::{
    Catalog, CatalogTool, EffectLevel, Naming, Origin, Prefix, RoutingTable,
};
use serde_json::json;

use crate::figure::Figure;
use crate::samples::{Samples, ms, timed};
use crate::shipped::BenchArtifacts;

/// Tools in the table.
pub(super) const TOOLS: usize = 10_000;

/// Milliseconds that building may take.
const TARGET: f64 = 20.0;

pub(super) fn run(_: &BenchArtifacts) -> Result<Vec<Figure>> {
    let catalogs = catalogs();
    let naming = Naming::default();
    let mut samples = Samples::default();
    for round in 0..220 {
        let (table, took) = timed(|| RoutingTable::build(1, black_box(&catalogs), &naming));
        anyhow::ensure!(table?.routes().len() == TOOLS, "tools are missing");
        if round >= 20 {
            samples.push(ms(took));
        }
    }
    let method = "RoutingTable::build of 10,000 tools: 4 backends, 625 skills with 4 tools each \
                  on every one of them, with descriptions, schemas and versions.";
    Ok(vec![
        Figure::new("routing_build", "ms", &samples, method).at_most(TARGET),
    ])
}

/// Catalogs as large hosts have them.
pub(super) fn catalogs() -> Vec<Catalog> {
    const BACKENDS: [&str; 4] = ["native", "local", "docker", "mcp"];
    const NAMES: [&str; 4] = ["bash_tool", "view", "create_file", "str_replace"];
    let skills = TOOLS / BACKENDS.len() / NAMES.len();
    let catalog = |backend: &str| Catalog {
        backend: backend.to_owned(),
        kind: backend.to_owned(),
        naming: Prefix::Skill,
        tools: (0..skills)
            .flat_map(|skill| NAMES.map(|name| Arc::new(tool(backend, skill, name))))
            .collect(),
    };
    BACKENDS.iter().map(|backend| catalog(backend)).collect()
}

fn tool(backend: &str, skill: usize, name: &str) -> CatalogTool {
    let skill = format!("{backend}-skill-{skill}");
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Which file" },
            "text": { "type": "string", "description": "What to put into it" }
        },
        "required": ["path"]
    });
    let tool = CatalogTool::new(name, "skill.execute", EffectLevel::Write);
    let mut tool = tool.of_skill(&skill, Some(semver::Version::new(1, 2, 3)));
    tool.description = format!("Does what {skill} does, with {name}, and says what came of it");
    tool.input_schema = schema;
    tool.origin = Origin {
        plugin: Some(skill.clone()),
        version: Some("1.2.3".to_owned()),
        file: Some(format!("/opt/conjure/plugins/lib{skill}.so")),
        build: None,
    };
    tool
}
