//! Plugins as programs read them: what is loaded, what is not and why.

use serde_json::{Value, json};

use super::{FailedPlugin, LoadedPlugin, Pin, PluginSource};

/// A loaded plugin.
pub fn loaded_json(plugin: &LoadedPlugin) -> Value {
    let manifest = plugin.manifest();
    let health = plugin.health();
    let (file, sha256, pinned, rustc, sdk) = match plugin.source() {
        PluginSource::File {
            path,
            sha256,
            header,
            pin,
            ..
        } => (
            Some(path.clone()),
            Some(sha256.to_string()),
            pin_words(pin),
            Some(header.rustc.clone()),
            Some(header.sdk.clone()),
        ),
        PluginSource::Linked => (None, None, pin_words(&Pin::Linked), None, None),
    };
    json!({
        "name": manifest.name,
        "version": manifest.version,
        "kind": manifest.kind,
        "description": manifest.description,
        "state": state(health.quarantined.is_some()),
        "reason": health.quarantined,
        "file": file,
        "sha256": sha256,
        "pinned": pinned,
        "rustc": rustc,
        "sdk": sdk,
        "capabilities": manifest.capabilities,
        "tools": manifest.tools,
    })
}

/// Whether calls are passed on to it.
pub fn state(quarantined: bool) -> &'static str {
    if quarantined { "quarantined" } else { "loaded" }
}

/// A file that is not loaded, or whose newest contents are not.
pub fn failed_json(failed: &FailedPlugin) -> Value {
    json!({
        "file": failed.path,
        "state": "failed",
        "reason": failed.reason.to_string(),
        "kept": failed.kept.as_ref().map(ToString::to_string),
    })
}

/// Why a library may run in this process.
fn pin_words(pin: &Pin) -> &'static str {
    match pin {
        Pin::Named => "named by --plugin",
        Pin::OwnDirectory => "in a directory of the user's own",
        Pin::Linked => "linked into the program",
        Pin::No { .. } => "no",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_quarantine_is_not_called_loaded() {
        assert_eq!([state(true), state(false)], ["quarantined", "loaded"]);
    }
}
