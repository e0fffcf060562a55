//! What goes wrong while the library is loaded, as the environment asks.

use std::time::Duration;

use conjure_skill_sdk::abi::{
    CallContext, Fault, Plugin_TO, PluginObject, RResult, RSlice, RVec, TD_Opaque, code,
};
use conjure_skill_sdk::export as sdk;
use serde_json::{Value, json};

use crate::export::{NAME, VERSION};
use crate::raw::Misbehaving;
use crate::skill;

/// Chooses what goes wrong.
const VARIABLE: &str = "CONJURE_MISBEHAVE";
/// Names a file that the constructor makes.
const TOUCH: &str = "CONJURE_MISBEHAVE_TOUCH";
/// How long slow things take when it is not said.
const SLOW_MS: u64 = 2_000;

/// Runs when the library is opened, before anything in it was asked for.
pub(crate) fn constructor() {
    if let Some(path) = std::env::var_os(TOUCH) {
        let _ = std::fs::write(path, "code of the library ran\n");
    }
    sleep_if("slow-constructor");
}

/// `Root::manifest`.
pub(crate) fn manifest() -> RVec<u8> {
    sleep_if("slow-load");
    if is("panic-manifest") {
        return sdk::manifest(skill::panicking, NAME, VERSION);
    }
    if is("bad-manifest") {
        return RVec::from(b"this is no JSON \xff {".to_vec());
    }
    let manifest = sdk::manifest(skill::skill, NAME, VERSION);
    let mut json: Value = match serde_json::from_slice(&manifest) {
        Ok(json) => json,
        Err(_) => return manifest,
    };
    // Changed only when asked, so that an honest manifest is the SDK's own bytes.
    if !corrupt_manifest(&mut json) {
        return manifest;
    }
    RVec::from(json.to_string().into_bytes())
}

/// `Root::create`.
pub(crate) fn create(config: RSlice<'_, u8>, cx: CallContext) -> RResult<PluginObject, Fault> {
    sleep_if("slow-load");
    if is("panic-create") {
        return sdk::create(skill::panicking, config, cx);
    }
    if is("refuse-create") {
        return RResult::RErr(Fault::new(code::FAILED, "asked to refuse"));
    }
    match sdk::create(skill::skill, config, cx) {
        RResult::ROk(inner) => {
            RResult::ROk(Plugin_TO::from_value(Misbehaving { inner }, TD_Opaque))
        }
        refused => refused,
    }
}

/// Whether the environment asks for this.
pub(crate) fn is(wanted: &str) -> bool {
    load_mode().is_some_and(|(name, _)| name == wanted)
}

/// Makes a manifest say what is not so.
fn corrupt_manifest(manifest: &mut Value) -> bool {
    let field = |name: &str| manifest.get(name).cloned().unwrap_or_default();
    let (name, value) = match load_mode().as_ref().map(|(name, _)| name.as_str()) {
        Some("wrong-version") => ("version", json!("99.9.9")),
        Some("wrong-name") => ("name", json!("somebody-else")),
        Some("wrong-kind") => ("kind", json!("backend")),
        Some("requires-unknown") => ("requires", json!({ "host": ["teleport/9"] })),
        Some("unknown-capability") => {
            let mut capabilities = field("capabilities");
            if let Some(list) = capabilities.as_array_mut() {
                list.push(json!("levitate/1"));
            }
            ("capabilities", capabilities)
        }
        _ => return false,
    };
    if let Some(object) = manifest.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
    true
}

fn sleep_if(wanted: &str) {
    if let Some((name, argument)) = load_mode()
        && name == wanted
    {
        std::thread::sleep(Duration::from_millis(argument.unwrap_or(SLOW_MS)));
    }
}

/// What the environment asks for, and its number.
fn load_mode() -> Option<(String, Option<u64>)> {
    let value = std::env::var(VARIABLE).ok()?;
    Some(match value.split_once(':') {
        Some((name, number)) => (name.to_owned(), number.parse().ok()),
        None => (value, None),
    })
}
