//! A place with a store, a loader and a plugin directory, and changes to libraries' bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{
    CallOptions, CopyStore, Instance, LoadedPlugin, Loader, LoaderOptions, NoServices,
    PluginCallFailure, PluginError, PluginLimits, PluginRegistry,
};
use conjure_skill_sdk::abi::HEADER_MAGIC;
use conjure_skill_sdk::protocol::{Create, HostInfo, Request};
use serde_json::{Value, json};

/// A host's surroundings in a temporary directory.
#[derive(Debug)]
pub struct Bench {
    /// Everything is below it.
    pub root: tempfile::TempDir,
    /// The plugin directory.
    pub dir: PathBuf,
    /// Loads into `root`'s store.
    pub loader: Loader,
}

impl Bench {
    /// With the usual options and short waits.
    pub fn new() -> Self {
        Self::with(LoaderOptions {
            limits: PluginLimits {
                grace: Duration::from_millis(200),
                ..PluginLimits::default()
            },
            ..LoaderOptions::default()
        })
    }

    /// With other options.
    pub fn with(options: LoaderOptions) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("plugins");
        std::fs::create_dir(&dir).unwrap();
        let store = CopyStore::open(root.path().join("store")).unwrap();
        Self {
            dir,
            loader: Loader::new(store, options),
            root,
        }
    }

    /// A registry with the loader.
    pub fn registry(&self) -> Arc<PluginRegistry> {
        Arc::new(PluginRegistry::new(self.loader.clone()))
    }

    /// Puts bytes under a name into the plugin directory.
    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.join(name);
        conjure_host::fs::write_atomic(&path, bytes).unwrap();
        path
    }

    /// Copies a library into the plugin directory and loads it.
    pub fn load(&self, library: &Path) -> Arc<LoadedPlugin> {
        Arc::new(self.try_load(library).unwrap())
    }

    /// [`Bench::load`] that may fail.
    pub fn try_load(&self, library: &Path) -> Result<LoadedPlugin, PluginError> {
        let name = library.file_name().unwrap().to_str().unwrap();
        let path = self.put(name, &std::fs::read(library).unwrap());
        self.loader.load(&path, false)
    }

    /// Makes an instance.
    pub async fn instance(&self, plugin: &Arc<LoadedPlugin>) -> Arc<Instance> {
        plugin
            .create(&Self::create(), Arc::new(NoServices))
            .await
            .unwrap()
    }

    /// What instances are made from.
    pub fn create() -> Create {
        Create {
            host: HostInfo {
                name: "conjure-plugin-tests".into(),
                version: "0".into(),
                operations: Vec::new(),
            },
            session: Some("s1".into()),
            ..Create::default()
        }
    }

    /// Runs a command through `skill.execute` and gives the text of the result.
    pub async fn execute(instance: &Instance, command: &str) -> Result<String, PluginCallFailure> {
        let json = envelope(&json!({ "command": command }));
        let reply = instance
            .request("skill.execute", json, CallOptions::default())
            .await?;
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        Ok(reply["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// A request in its envelope.
pub fn envelope(body: &Value) -> Vec<u8> {
    serde_json::to_vec(&Request::new(body.clone())).unwrap()
}

/// A library of which other versions can be made: the same code under another hash.
#[derive(Debug, Clone)]
pub struct Versions {
    library: Vec<u8>,
    offset: usize,
    length: usize,
}

impl Versions {
    /// Versions that differ in the spare bytes of the header, which mean nothing.
    pub fn of_header(library: &Path) -> Self {
        let library = std::fs::read(library).unwrap();
        let mut magic = HEADER_MAGIC.to_vec();
        magic.extend(304u32.to_le_bytes());
        let at = find(&library, &magic) + 212;
        Self {
            library,
            offset: at,
            length: 8,
        }
    }

    /// Versions that differ in what stands in the place of a text.
    pub fn of_text(library: &Path, text: &str) -> Self {
        let library = std::fs::read(library).unwrap();
        let at = find(&library, text.as_bytes());
        Self {
            library,
            offset: at,
            length: text.len(),
        }
    }

    /// The library as it was built.
    pub fn original(&self) -> &[u8] {
        &self.library
    }

    /// The version with these bytes.
    pub fn with(&self, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(bytes.len(), self.length);
        let mut changed = self.library.clone();
        changed[self.offset..self.offset + self.length].copy_from_slice(bytes);
        changed
    }

    /// The version with this number in the header.
    pub fn number(&self, number: u64) -> Vec<u8> {
        self.with(&number.to_le_bytes())
    }
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    let first = what[0];
    let mut from = 0;
    while let Some(next) = bytes[from..].iter().position(|b| *b == first) {
        if bytes[from + next..].starts_with(what) {
            return from + next;
        }
        from += next + 1;
    }
    panic!("the library does not contain the bytes");
}
