//! What a plugin is made of, out of its `Cargo.lock`.

use serde::Deserialize;
use serde_json::{Value, json};

/// The file of a package that says what the plugin is made of.
pub const SBOM_FILE: &str = "sbom.cdx.json";
/// The file of a package that has the licence's text.
pub const LICENSE_FILE: &str = "LICENSE";

#[derive(Deserialize)]
struct CargoLock {
    #[serde(default)]
    package: Vec<LockedCrate>,
}

#[derive(Deserialize)]
struct LockedCrate {
    name: String,
    version: String,
    source: Option<String>,
    checksum: Option<String>,
}

/// The crates that a `Cargo.lock` names, as a CycloneDX document in version 1.5 of the form: also
/// those that only run while the plugin is built or tested. Nothing where the text is no such file.
pub fn sbom(name: &str, version: &str, cargo_lock: &str) -> Option<String> {
    let lock: CargoLock = toml::from_str(cargo_lock).ok()?;
    let others = lock.package.iter();
    let components: Vec<Value> = others
        .filter(|one| (one.name.as_str(), one.version.as_str()) != (name, version))
        .map(component)
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "library",
            "name": name,
            "version": version,
        }},
        "components": components,
    });
    serde_json::to_string_pretty(&document).ok()
}

fn component(one: &LockedCrate) -> Value {
    let mut component = json!({
        "type": "library",
        "name": one.name,
        "version": one.version,
    });
    if let Some(component) = component.as_object_mut() {
        let is_registry = |source: &String| source.starts_with("registry+");
        if one.source.as_ref().is_some_and(is_registry) {
            let purl = format!("pkg:cargo/{}@{}", one.name, one.version);
            component.insert("purl".to_owned(), purl.into());
        }
        if let Some(checksum) = &one.checksum {
            let hashes = json!([{ "alg": "SHA-256", "content": checksum }]);
            component.insert("hashes".to_owned(), hashes);
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_crate_is_a_component() {
        let lock = r#"
            version = 4
            [[package]]
            name = "mine"
            version = "0.1.0"
            [[package]]
            name = "serde"
            version = "1.0.0"
            source = "registry+https://github.com/rust-lang/crates.io-index"
            checksum = "ab"
            [[package]]
            name = "beside"
            version = "0.2.0"
        "#;
        let document: Value = serde_json::from_str(&sbom("mine", "0.1.0", lock).unwrap()).unwrap();
        assert_eq!(
            document["components"],
            json!([
                { "type": "library", "name": "serde", "version": "1.0.0",
                  "purl": "pkg:cargo/serde@1.0.0",
                  "hashes": [{ "alg": "SHA-256", "content": "ab" }] },
                { "type": "library", "name": "beside", "version": "0.2.0" },
            ])
        );
        assert!(sbom("mine", "0.1.0", "= no").is_none());
    }
}
