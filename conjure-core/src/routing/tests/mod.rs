//! Catalogs and wishes in, tables and errors out. What the tests share stands here.

mod attacks;
mod build;
mod denied;
mod many_options;
mod run_time;
mod versions;

use std::sync::Arc;

use super::*;

fn tool(skill: &str, tool: &str) -> CatalogTool {
    CatalogTool {
        origin: Origin {
            plugin: Some(format!("{skill}-plugin")),
            version: Some("1.0.0".into()),
            file: Some(format!("/plugins/lib{skill}.so")),
            build: None,
        },
        ..CatalogTool::new(tool, "skill.execute", EffectLevel::Write).of_skill(skill, None)
    }
}

fn versioned(skill: &str, name: &str, version: &str) -> CatalogTool {
    CatalogTool {
        skill_version: Some(version.parse().unwrap()),
        ..tool(skill, name)
    }
}

fn plain(name: &str) -> CatalogTool {
    CatalogTool::new(name, "executor.bash", EffectLevel::Destructive)
}

fn catalog(backend: &str, naming: Prefix, tools: Vec<CatalogTool>) -> Catalog {
    Catalog {
        backend: backend.into(),
        kind: backend.split('-').next().unwrap().into(),
        naming,
        tools: tools.into_iter().map(Arc::new).collect(),
    }
}

fn skills(backend: &str, tools: Vec<CatalogTool>) -> Catalog {
    catalog(backend, Prefix::Skill, tools)
}

fn alias(backend: Option<&str>, skill: Option<&str>, tool: Option<&str>, name: &str) -> Alias {
    Alias {
        backend: backend.map(Into::into),
        skill: skill.map(Into::into),
        tool: tool.map(Into::into),
        name: name.into(),
    }
}

fn aliased(aliases: Vec<Alias>) -> Naming {
    Naming {
        aliases,
        ..Naming::default()
    }
}

/// `name -> backend/skill/tool`, one a route, in order.
fn listing(table: &RoutingTable) -> Vec<String> {
    table
        .routes()
        .iter()
        .map(|route| {
            assert_eq!(table.route(route.name.as_str()), Some(route));
            let skill = route.skill().unwrap_or("-");
            format!(
                "{} -> {}/{skill}/{}",
                route.name,
                route.backend,
                route.tool()
            )
        })
        .collect()
}

fn built(catalogs: &[Catalog], naming: &Naming) -> Vec<String> {
    listing(&RoutingTable::build(1, catalogs, naming).unwrap())
}

fn refused(catalogs: &[Catalog], naming: &Naming) -> RoutingError {
    RoutingTable::build(1, catalogs, naming).unwrap_err()
}
