//! Plugins that are programs, with the real Python: calls, what they do wrong, what they reach, and
//! what becomes of their files.

mod files;
mod kinds;
mod odd;
mod sharing;
mod wrong;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_host::plugin::{LoadedPlugin, LoaderOptions, PluginError, PluginLimits, WorkerOptions};
use conjure_kit::{conjure_bin, repo_root};
use conjure_plugin_tests::Bench;

const ODD: &str = include_str!("odd.py");
const RAW: &str = include_str!("raw.py");

fn options() -> LoaderOptions {
    LoaderOptions {
        limits: PluginLimits {
            grace: Duration::from_millis(300),
            ..PluginLimits::default()
        },
        worker: Some(WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"])),
        ..LoaderOptions::default()
    }
}

fn bench() -> Bench {
    Bench::with(options())
}

/// The SDK.
fn sdk() -> Vec<u8> {
    std::fs::read(repo_root().join("skill-sdk/python/conjure_plugin.py")).unwrap()
}

/// The SDK's own tests, with the frames that the host has.
#[test]
fn the_sdk_for_python_by_itself() {
    let repository = repo_root();
    let tests = "tests/plugins/tests/plugins/executables/test_sdk.py";
    let output = std::process::Command::new("/usr/bin/python3")
        .args(["-B", tests])
        .current_dir(&repository)
        .env("PYTHONPATH", "skill-sdk/python")
        .env("CONJURE_FRAMES", "skill-sdk/abi/protocol/frames.json")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("\nOK"), "{said}");
}

/// A description.
fn described(name: &str, version: &str, command: &[&str], files: &[&str]) -> String {
    format!(
        "plugin = 1\nprotocol = 1\nkind = \"skill\"\nname = \"{name}\"\nversion = \"{version}\"\n\
         command = {command:?}\nfiles = {files:?}\n"
    )
}

/// Puts the odd skill, in this version, into the plugin directory; gives its description's path.
fn put_odd(bench: &Bench, version: &str) -> PathBuf {
    bench.put("conjure_plugin.py", &sdk());
    bench.put("odd.py", ODD.as_bytes());
    let text = described(
        "odd",
        version,
        &["python3", "odd.py"],
        &["odd.py", "conjure_plugin.py"],
    );
    bench.put("odd.plugin.toml", text.as_bytes())
}

fn load_odd(bench: &Bench) -> Arc<LoadedPlugin> {
    let path = put_odd(bench, "1.0.0");
    Arc::new(bench.loader.load(&path, false).unwrap())
}

/// Loads the program that breaks the protocol in this way.
fn load_raw(bench: &Bench, mode: &str) -> Result<Arc<LoadedPlugin>, PluginError> {
    bench.put("raw.py", RAW.as_bytes());
    let text = described("raw", "1.0.0", &["python3", "raw.py", mode], &["raw.py"]);
    let path = bench.put("raw.plugin.toml", text.as_bytes());
    bench.loader.load(&path, false).map(Arc::new)
}
