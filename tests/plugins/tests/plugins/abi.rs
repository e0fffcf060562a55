//! Plugins that were built with other settings, compilers and versions of the ABI.

use conjure_host::plugin::{Pin, PluginSource};
use conjure_plugin_tests::{Bench, Plugin, left_out, locked, sdk_copy, workspace};

use super::sources::MARKED;

async fn loads_and_runs(plugin: &Plugin<'_>) -> String {
    let bench = Bench::new();
    let loaded = bench.load(&plugin.build());
    let instance = bench.instance(&loaded).await;
    assert_eq!(
        Bench::execute(&instance, "mark").await.unwrap(),
        "mark:00000000000"
    );
    let PluginSource::File { header, pin, .. } = loaded.source() else {
        panic!("a library has a file");
    };
    assert_eq!(*pin, Pin::OwnDirectory);
    header.rustc.clone()
}

/// Versions that the host is not built with.
const PINS: [(&str, &str); 2] = [("serde", "1.0.228"), ("serde_json", "1.0.150")];

#[tokio::test(flavor = "multi_thread")]
async fn built_outside_the_workspace_with_its_own_lock_file_and_opt_level() {
    let place = tempfile::tempdir().unwrap();
    let plugin = Plugin {
        profile: "opt-level = 2\ndebug = false\nstrip = true\n",
        place: Some(place.path().join("outside")),
        pins: &PINS,
        ..Plugin::new("outside", MARKED)
    };
    loads_and_runs(&plugin).await;
    // Cargo builds what the lock file says, and both sides of the boundary use these two.
    for (name, version) in PINS {
        assert_eq!(locked(&plugin.dir(), name), [version], "{name}");
        assert_eq!(locked(&workspace(), name).len(), 1, "{name}");
        assert_ne!(
            locked(&workspace(), name),
            [version],
            "{name} is the host's: pin another version"
        );
    }
}

async fn by_another_compiler(version: &str, variable: &str) {
    let Some(rustc) = std::env::var_os(variable) else {
        left_out(
            &format!("a plugin built by rustc {version}"),
            &format!("{variable} is not set"),
        );
        return;
    };
    let plugin = Plugin {
        rustc: Some(rustc.into()),
        ..Plugin::new(
            if version == "1.85" {
                "by-185"
            } else {
                "by-196"
            },
            MARKED,
        )
    };
    let rustc = loads_and_runs(&plugin).await;
    assert!(rustc.contains(version), "it was built by {rustc}");
}

#[tokio::test(flavor = "multi_thread")]
async fn built_by_rustc_1_85() {
    by_another_compiler("1.85", "CONJURE_RUSTC_185").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn built_by_rustc_1_96() {
    by_another_compiler("1.96", "CONJURE_RUSTC_196").await;
}

const LOG: &str = "
    /// Writes a line to the host's log under the plugin's name. `level` is a [`LogLevel`] number.
    #[sabi(last_prefix_field)]
    fn log(&self, level: u32, target: RSlice<'_, u8>, message: RSlice<'_, u8>);
";

#[tokio::test(flavor = "multi_thread")]
async fn an_older_plugin_whose_context_has_one_item_fewer() {
    let sdk = sdk_copy(
        "older",
        &[
            ("abi/src/context.rs", LOG, ""),
            (
                "abi/src/context.rs",
                "    fn host(&self, op",
                "    #[sabi(last_prefix_field)]\n    fn host(&self, op",
            ),
            (
                "src/cx.rs",
                "        self.raw.log(
            level as u32,
            RSlice::from_slice(b\"\"),
            RSlice::from_slice(message.as_ref().as_bytes()),
        );
",
                "        let _ = (level, message);\n",
            ),
        ],
    );
    let plugin = Plugin {
        sdk: Some(sdk),
        ..Plugin::new("older", MARKED)
    };
    loads_and_runs(&plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_plugin_whose_context_has_one_item_more() {
    let more = format!(
        "{LOG}\n    /// Something new.\n    fn trace_id(&self) -> u64 {{\n        0\n    }}\n"
    );
    let sdk = sdk_copy("newer", &[("abi/src/context.rs", LOG, &more)]);
    let plugin = Plugin {
        sdk: Some(sdk),
        ..Plugin::new("newer", MARKED)
    };
    loads_and_runs(&plugin).await;
}

#[test]
fn a_newer_plugin_that_relies_on_the_new_item_is_refused() {
    let more = format!(
        "{}\n    /// Something new.\n    #[sabi(last_prefix_field)]\n    fn trace_id(&self) -> u64;\n",
        LOG.replace("    #[sabi(last_prefix_field)]\n", "")
    );
    let sdk = sdk_copy("relying", &[("abi/src/context.rs", LOG, &more)]);
    let plugin = Plugin {
        sdk: Some(sdk),
        ..Plugin::new("relying", MARKED)
    };
    let error = Bench::new()
        .try_load(&plugin.build())
        .unwrap_err()
        .to_string();
    assert!(error.contains("relies on"), "{error}");
}
