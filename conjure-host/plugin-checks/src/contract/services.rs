//! What the host of a bench does for a plugin: it keeps values, takes files and progress, gives the
//! secrets and the HTTP that the manifest names, as a host does, and answers no question.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_abi::{Fault, code};
use conjure_plugins::{CallMeta, HostServices, PluginId};
use conjure_skill_sdk::protocol::{
    Elicited, Empty, KvKey, KvKeys, KvList, KvSet, KvValue, Manifest, RegisterFile, Registered,
    Roots, host_op,
};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The services of one instance.
pub(super) struct BenchServices {
    state: Arc<Mutex<BenchState>>,
    /// Services of a host that has no session.
    host_services: Arc<dyn HostServices>,
    /// What was asked of the outside and not had, such as a secret that nobody set.
    missing_resource: Arc<Mutex<Option<String>>>,
}

impl BenchServices {
    /// What a plugin may ask for that says this of itself.
    pub(super) fn of(manifest: &Manifest, dir: &Path) -> Self {
        let secrets = conjure_config::env::secrets();
        Self {
            state: Arc::default(),
            missing_resource: Arc::default(),
            host_services: conjure_runtime::plugin_services(&manifest.permissions, secrets, dir),
        }
    }

    /// Where the words are about what the plugin could not have from outside.
    pub(super) fn missing_resource(&self) -> Arc<Mutex<Option<String>>> {
        Arc::clone(&self.missing_resource)
    }
}

#[derive(Debug, Default)]
struct BenchState {
    values: BTreeMap<String, Value>,
    files: usize,
}

impl HostServices for BenchServices {
    fn host(
        &self,
        plugin: &PluginId,
        call: &CallMeta,
        op: &str,
        json: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
        if [host_op::SECRET_GET, host_op::HTTP_SEND].contains(&op) {
            let (answer, unmet) = (
                self.host_services.host(plugin, call, op, json),
                self.missing_resource(),
            );
            let op = op.to_owned();
            return Box::pin(async move {
                let answer = answer.await;
                // What the manifest does not name is the plugin's own mistake.
                if let Err(fault) = &answer
                    && [code::NOT_FOUND, code::FAILED].contains(&fault.code)
                {
                    let mut unmet = unmet.lock().unwrap_or_else(PoisonError::into_inner);
                    *unmet = Some(format!("`{op}`: {}", fault.text()));
                }
                answer
            });
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(std::future::ready(answer(&mut state, op, &json)))
    }
}

fn answer(state: &mut MutexGuard<'_, BenchState>, op: &str, json: &[u8]) -> Result<Vec<u8>, Fault> {
    match op {
        host_op::PROGRESS => reply(&Empty {}),
        host_op::ROOTS => reply(&Roots::default()),
        host_op::FILE => {
            let RegisterFile { .. } = read(op, json)?;
            state.files += 1;
            reply(&Registered {
                artifact: format!("file-{}", state.files),
            })
        }
        host_op::KV_GET => {
            let KvKey { key } = read(op, json)?;
            reply(&KvValue {
                value: state.values.get(&key).cloned(),
            })
        }
        host_op::KV_SET => {
            let KvSet { key, value } = read(op, json)?;
            state.values.insert(key, value);
            reply(&Empty {})
        }
        host_op::KV_DELETE => {
            let KvKey { key } = read(op, json)?;
            state.values.remove(&key);
            reply(&Empty {})
        }
        host_op::KV_LIST => {
            let KvList { prefix } = read(op, json)?;
            let keys = state.values.keys();
            reply(&KvKeys {
                keys: keys
                    .filter(|key| key.starts_with(&prefix))
                    .cloned()
                    .collect(),
            })
        }
        host_op::ELICIT => reply(&Elicited {
            action: "cancel".to_owned(),
            content: BTreeMap::new(),
        }),
        _ => Err(Fault::new(
            code::DENIED,
            format!("`{op}` is not there while a contract is checked"),
        )),
    }
}

fn read<T: DeserializeOwned>(op: &str, json: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(json).map_err(|error| {
        Fault::new(
            code::INVALID,
            format!("the request for `{op}` does not fit: {error}"),
        )
    })
}

fn reply(reply: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(reply).map_err(|error| Fault::new(code::FAILED, error.to_string()))
}
