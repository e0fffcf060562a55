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
    /// `NAME`, `NAME VERSION` or `NAME VERSION (SOURCE)`, as much as tells it from others.
    #[serde(default)]
    dependencies: Vec<String>,
}

impl LockedCrate {
    fn is_named(&self, dependency: &str) -> bool {
        let mut words = dependency.split(' ');
        words.next() == Some(self.name.as_str())
            && words.next().is_none_or(|version| version == self.version)
            && words.next().is_none_or(|source| self.is_from(source))
    }

    /// Whether `(SOURCE)` is where it comes from. Which revision that came to is said with the crate, and
    /// not where it is named.
    fn is_from(&self, source: &str) -> bool {
        let own = self.source.as_deref().unwrap_or_default();
        let own = own.split_once('#').map_or(own, |(source, _)| source);
        let named = source.strip_prefix('(');
        named.and_then(|it| it.strip_suffix(')')) == Some(own)
    }
}

impl CargoLock {
    /// The other crates that one depends on, directly or not, in the order of the lock.
    fn transitive_dependencies(&self, root: &LockedCrate) -> Vec<&LockedCrate> {
        let mut reached = vec![false; self.package.len()];
        let mut left = vec![root];
        while let Some(one) = left.pop() {
            for (other, reached) in self.package.iter().zip(&mut reached) {
                let is_next = one.dependencies.iter().any(|it| other.is_named(it));
                if is_next && !*reached {
                    *reached = true;
                    left.push(other);
                }
            }
        }
        let all = self.package.iter().zip(reached);
        let reached = all.filter_map(|(one, reached)| reached.then_some(one));
        reached.filter(|one| !std::ptr::eq(*one, root)).collect()
    }
}

/// What a plugin is made of, as a CycloneDX document in version 1.5 of the form: the crates of a
/// `Cargo.lock` that its own crate depends on, also those that only run while it is built or tested.
/// Nothing where the text is no such file, or names no crate of this name of the author's own.
pub fn sbom(name: &str, version: &str, own: &str, cargo_lock: &str) -> Option<String> {
    let lock: CargoLock = toml::from_str(cargo_lock).ok()?;
    let mut crates = lock.package.iter();
    let root = crates.find(|one| one.name == own && one.source.is_none())?;
    let components: Vec<Value> = lock
        .transitive_dependencies(root)
        .into_iter()
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
    fn what_its_own_crate_depends_on_is_a_component_and_nothing_else() {
        let lock = r##"
            version = 4
            [[package]]
            name = "mine"
            version = "0.1.0"
            dependencies = ["beside", "serde 1.0.0"]
            [[package]]
            name = "serde"
            version = "0.9.0"
            source = "registry+https://github.com/rust-lang/crates.io-index"
            [[package]]
            name = "serde"
            version = "1.0.0"
            source = "registry+https://github.com/rust-lang/crates.io-index"
            checksum = "ab"
            [[package]]
            name = "beside"
            version = "0.2.0"
            dependencies = ["mine", "deep 1.0.0 (git+https://h.example/deep)"]
            [[package]]
            name = "deep"
            version = "1.0.0"
            source = "git+https://h.example/deep#0123abcd"
            [[package]]
            name = "neighbour"
            version = "0.2.0"
            dependencies = ["serde 0.9.0"]
        "##;
        let document = sbom("plugin", "0.1.0", "mine", lock).unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let names: Vec<&str> = document["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["serde", "beside", "deep"]);
        assert_eq!(
            document["components"][0],
            json!({ "type": "library", "name": "serde", "version": "1.0.0",
                "purl": "pkg:cargo/serde@1.0.0",
                "hashes": [{ "alg": "SHA-256", "content": "ab" }] }),
        );
        assert_eq!(document["metadata"]["component"]["name"], "plugin");
        assert!(
            sbom("plugin", "0.1.0", "serde", lock).is_none(),
            "not its own"
        );
        assert!(sbom("plugin", "0.1.0", "mine", "= no").is_none());
    }
}
