//! Plugins that were built with other settings, compilers and versions of the ABI.

use std::path::{Path, PathBuf};

use conjure_host::plugin::{Pin, PluginError, PluginSource};
use conjure_plugin_tests::{Bench, Plugin, locked, report_left_out, sdk_copy, workspace};

use super::sources::MARKED;

async fn loads_and_runs(library: &Path) -> String {
    let bench = Bench::new();
    let loaded = bench.load(library);
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
        dir: Some(place.path().join("outside")),
        pins: &PINS,
        ..Plugin::new("outside", MARKED)
    };
    loads_and_runs(&plugin.build()).await;
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
        report_left_out(
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
    let rustc = loads_and_runs(&plugin.build()).await;
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

/// An item that a plugin's ABI has and the host's has not.
const SOMETHING_NEW: &str = "
    /// Something new.
    fn trace_id(&self) -> u64 {
        0
    }
";

const START: &str = "
    /// Starts an operation. The future is a join handle of a task on the plugin's own runtime:
    /// it may be polled anywhere, and dropping it runs no author code on the dropping thread.
    #[sabi(last_prefix_field)]
    fn start(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> FfiFuture<Reply>;
";

const CREATE: &str = "
    /// Makes an instance. The first argument is JSON (`protocol/1/create.json`); the context
    /// lives as long as the instance and serves host operations outside any call.
    #[sabi(last_prefix_field)]
    pub create: extern \"C\" fn(RSlice<'_, u8>, CallContext) -> RResult<PluginObject, Fault>,
";

const EXPORTED: &str = "$crate::abi::Root { manifest, create }";

/// Builds the marked skill on an SDK with these changes.
fn built_on(name: &str, changes: &[(&str, &str, &str)]) -> PathBuf {
    let plugin = Plugin {
        sdk: Some(sdk_copy(name, changes)),
        ..Plugin::new(name, MARKED)
    };
    plugin.build()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_plugin_whose_context_has_one_item_fewer() {
    let library = built_on(
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
    loads_and_runs(&library).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_plugin_whose_context_has_one_item_more() {
    let more = format!("{LOG}{SOMETHING_NEW}");
    let library = built_on("newer", &[("abi/src/context.rs", LOG, &more)]);
    loads_and_runs(&library).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_plugin_whose_object_has_one_item_more() {
    let more = format!("{START}{SOMETHING_NEW}");
    let library = built_on("newer-object", &[("abi/src/plugin.rs", START, &more)]);
    loads_and_runs(&library).await;
}

/// Here the newer ABI's own hosts rely on the item: what a plugin gives may be more than this host
/// asks for in any case.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_plugin_whose_root_has_one_item_more() {
    let more = format!(
        "{}\n    /// Something new.\n    #[sabi(last_prefix_field)]\n    pub trace_id: extern \"C\" fn() -> u64,\n",
        CREATE.replace("    #[sabi(last_prefix_field)]\n", "")
    );
    let exported = "{
                extern \"C\" fn trace_id() -> u64 {
                    0
                }
                $crate::abi::Root { manifest, create, trace_id }
            }";
    let library = built_on(
        "newer-root",
        &[
            ("abi/src/root.rs", CREATE, &more),
            ("src/export.rs", EXPORTED, exported),
        ],
    );
    loads_and_runs(&library).await;
}

/// An older plugin cannot have fewer items of its object than `call` and `start`, nor of its root
/// than `manifest` and `create`: they are the prefix, which every host calls. So there is no case
/// in which one with fewer loads; what there is to see is that it is refused, by what it lacks.
/// An item that a later ABI puts after the prefix may be missing, since no host relies on it.
#[test]
fn a_plugin_without_an_item_that_the_host_calls_is_refused() {
    let object = built_on(
        "less-object",
        &[
            ("abi/src/plugin.rs", START, "\n"),
            (
                "abi/src/plugin.rs",
                "    fn call(&self, op",
                "    #[sabi(last_prefix_field)]\n    fn call(&self, op",
            ),
            (
                "src/dispatch.rs",
                "    fn start(&self, op: RSlice<'_, u8>",
                "}\n\nimpl<D: Dispatch> GuardedPlugin<D> {\n    fn start(&self, op: RSlice<'_, u8>",
            ),
        ],
    );
    let root = built_on(
        "less-root",
        &[
            ("abi/src/root.rs", CREATE, "\n"),
            (
                "abi/src/root.rs",
                "    pub manifest: extern",
                "    #[sabi(last_prefix_field)]\n    pub manifest: extern",
            ),
            (
                "src/export.rs",
                EXPORTED,
                "{ let _ = create; $crate::abi::Root { manifest } }",
            ),
        ],
    );
    // The object's table has two items more: those that `abi_stable` needs for itself.
    for (library, lacks) in [
        (
            object,
            "this host relies on 4 items of conjure_abi::plugin::Plugin_trait::VTable, and the \
             plugin has 3",
        ),
        (
            root,
            "this host relies on 2 items of conjure_abi::root::Root, and the plugin has 1",
        ),
    ] {
        let error = Bench::new().try_load(&library).unwrap_err();
        assert!(matches!(error, PluginError::Layout { .. }), "{error}");
        assert!(error.to_string().contains(lacks), "{error}");
    }
}

#[test]
fn a_newer_plugin_that_relies_on_the_new_item_is_refused() {
    let more = format!(
        "{}\n    /// Something new.\n    #[sabi(last_prefix_field)]\n    fn trace_id(&self) -> u64;\n",
        LOG.replace("    #[sabi(last_prefix_field)]\n", "")
    );
    let library = built_on("relying", &[("abi/src/context.rs", LOG, &more)]);
    let error = Bench::new().try_load(&library).unwrap_err().to_string();
    assert!(error.contains("relies on"), "{error}");
}
