//! The host operations of a plugin that is tried without a host: what it may ask for by its manifest,
//! and nothing of a session.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure_plugins::HostServices;
use conjure_skill_sdk::protocol::Permissions;
use secrecy::SecretString;

use crate::backend::permission_check::PermissionCheck;
use crate::backend::services::{KeyValues, LazyHttp, Services, ServicesShared};

/// Secrets by their names, HTTP to the hosts that the permissions name, and values that are kept below
/// `dir`, each as a host does it. What needs a session is answered with a fault that says so.
pub fn plugin_services(
    permissions: &Permissions,
    secrets: BTreeMap<String, SecretString>,
    dir: &Path,
) -> Arc<dyn HostServices> {
    let shared = ServicesShared {
        key_values: KeyValues::new(dir.join("kv")),
        secrets,
        http: LazyHttp::default(),
        temp: dir.join("tmp"),
        sessions: Mutex::default(),
        auths: None,
    };
    Arc::new(Services {
        shared: Arc::new(shared),
        permissions: PermissionCheck::new(permissions, None),
        session: None,
    })
}
