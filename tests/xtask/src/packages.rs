//! Packages the crates that authors of plugins get from a registry, and builds them from the packages
//! alone, without a network.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::repo;

/// The crates that are published, in the order in which a registry takes them.
const PUBLISHED: [&str; 3] = ["conjure-abi", "conjure-skill-macros", "conjure-skill-sdk"];

/// Checks what the manifests say, makes the packages and builds what is in them.
pub(crate) fn check() -> Result<()> {
    let metadata = repo::metadata()?;
    let wrong = problems(&metadata);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut package = repo::cargo(["package", "--offline", "--allow-dirty"]);
    for name in PUBLISHED {
        package.args(["-p", name]);
    }
    repo::run(&mut package)
}

/// What cargo says of each published crate.
///
/// # Errors
/// When cargo cannot be asked, or does not know one of them.
pub(crate) fn published() -> Result<Vec<Value>> {
    let metadata = repo::metadata()?;
    let find = |name: &&str| {
        let found = list(&metadata, "packages").find(|package| text(package, "name") == *name);
        let found = found.cloned();
        found.with_context(|| format!("the workspace has no package `{name}`"))
    };
    PUBLISHED.iter().map(find).collect()
}

/// What is wrong with the manifests, a line each.
fn problems(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut published = Vec::new();
    for package in list(metadata, "packages") {
        let name = text(package, "name");
        // An empty list of registries is `publish = false`.
        if package.get("publish").is_some_and(|to| !to.is_null()) {
            continue;
        }
        published.push(name);
        for field in ["description", "license", "readme"] {
            if text(package, field).is_empty() {
                wrong.push(format!("{name} is published and has no `{field}`"));
            }
        }
        for dependency in list(package, "dependencies") {
            let is_for_tests = text(dependency, "kind") == "dev";
            let is_at_a_path = !text(dependency, "path").is_empty();
            if is_at_a_path && text(dependency, "req") == "*" && !is_for_tests {
                wrong.push(format!(
                    "{name} is published and depends on {} by its path alone: give a version too",
                    text(dependency, "name")
                ));
            }
        }
    }
    published.sort_unstable();
    if published != PUBLISHED {
        wrong.push(format!(
            "published are {}, and it should be {}: look at `publish` in the manifests",
            published.join(", "),
            PUBLISHED.join(", ")
        ));
    }
    wrong
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, more: &Value) -> Value {
        let mut package = json!({
            "name": name, "description": "A crate", "license": "MIT", "readme": "README.md",
            "publish": null,
            "dependencies": [{ "name": "serde", "req": "^1", "kind": null }],
        });
        for (key, value) in more.as_object().unwrap() {
            package[key] = value.clone();
        }
        package
    }

    #[test]
    fn what_a_registry_would_refuse_is_found() {
        let sdk = |more| {
            json!({ "packages": [
            package("conjure-abi", &json!({})), package("conjure-skill-macros", &json!({})),
            package("conjure-skill-sdk", &more),
            package("conjure-cli", &json!({ "publish": [] })),
        ] })
        };
        assert_eq!(problems(&sdk(json!({}))), [""; 0]);
        assert_eq!(
            problems(&sdk(json!({ "license": null }))),
            ["conjure-skill-sdk is published and has no `license`"]
        );
        assert_eq!(
            problems(&sdk(json!({ "readme": null }))),
            ["conjure-skill-sdk is published and has no `readme`"]
        );
        let path = json!({ "dependencies": [
            { "name": "conjure-abi", "path": "/a", "req": "*", "kind": null },
            { "name": "conjure-kit", "path": "/b", "req": "*", "kind": "dev" },
        ] });
        assert_eq!(problems(&sdk(path)).len(), 1);
        assert_eq!(problems(&sdk(json!({ "publish": [] }))).len(), 1);
    }
}
