//! Variables of the host's environment that a configuration names.
//!
//! The host takes the keys of providers out of its environment, so that nobody gets them who was
//! not given them. A configuration that names one gives it: the host is asked for it as a secret.

use std::cell::RefCell;
use std::collections::BTreeMap;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::PROVIDER_KEYS;

use crate::expand::{ExpansionEnv, expand};

/// The key of a provider that is no longer in the environment.
pub(crate) async fn provider_key(name: &str, cx: &Cx) -> Option<String> {
    if !PROVIDER_KEYS.contains(&name) || std::env::var_os(name).is_some() {
        return None;
    }
    cx.secret_async(name).await.ok()
}

/// A text with values in place of its variables. Keys of providers among them are noted as secrets.
///
/// # Errors
/// As [`expand`].
pub(crate) async fn expanded(
    text: &str,
    cx: &Cx,
    secrets: &mut Vec<String>,
) -> Result<String, String> {
    let mut keys = VariableKeys::new();
    loop {
        let (value, wanted) = with_keys(text, cx, &keys);
        let Some(name) = wanted else {
            secrets.extend(keys.into_values().flatten());
            return value;
        };
        let key = provider_key(&name, cx).await;
        keys.insert(name, key);
    }
}

/// Keys that were asked for, as far as there are such.
type VariableKeys = BTreeMap<String, Option<String>>;

/// The text with what is known, and a key that must be asked for first.
fn with_keys(text: &str, cx: &Cx, keys: &VariableKeys) -> (Result<String, String>, Option<String>) {
    let wanted = RefCell::new(None);
    let variable = |name: &str| {
        let found = std::env::var(name).ok();
        if found.is_some() || !PROVIDER_KEYS.contains(&name) {
            return found;
        }
        keys.get(name).cloned().unwrap_or_else(|| {
            wanted.replace(Some(name.to_owned()));
            None
        })
    };
    let env = ExpansionEnv {
        working_dir: cx.working_dir(),
        variable: &variable,
    };
    let value = expand(text, &env);
    (value, wanted.into_inner())
}
