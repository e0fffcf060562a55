//! A place with a store, a loader and a plugin directory, and changes to libraries' bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{
    CallFailure, CallOptions, Instance, LoadedPlugin, Loader, LoaderOptions, NoServices,
    PluginError, PluginLimits, Registry, Store,
};
use conjure_skill_sdk::abi::{HEADER_LEN, HEADER_MAGIC};
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
        let store = Store::open(root.path().join("store")).unwrap();
        Self {
            dir,
            loader: Loader::new(store, options),
            root,
        }
    }

    /// A registry with the loader.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::new(Registry::new(self.loader.clone()))
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
    pub async fn execute(instance: &Instance, command: &str) -> Result<String, CallFailure> {
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

/// Where the spare bytes of a library's header are.
pub fn spare_offset(library: &[u8]) -> usize {
    let header = library
        .windows(HEADER_LEN)
        .position(|w| w.starts_with(&HEADER_MAGIC) && w[8..12] == 304u32.to_le_bytes())
        .expect("the library has a header");
    header + 212
}

/// The library with other spare bytes: the same code under another hash.
pub fn patch(library: &[u8], number: u64) -> Vec<u8> {
    let mut changed = library.to_vec();
    let at = spare_offset(library);
    changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
    changed
}

/// The library with a text of the same length in the place of another, wherever it stands.
pub fn replace(library: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut changed = library.to_vec();
    let mut found = false;
    for at in 0..changed.len() - old.len() {
        if changed[at..].starts_with(old) {
            changed[at..at + old.len()].copy_from_slice(new);
            found = true;
        }
    }
    assert!(found, "the library does not contain the text");
    changed
}
