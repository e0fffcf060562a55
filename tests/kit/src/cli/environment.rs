//! The environment of a program in a test: nothing of this machine but the system's tools.

use std::ffi::OsString;

use crate::Workspace;

/// Everything that a program may see, apart from what a test adds.
pub(crate) fn environment(workspace: &Workspace) -> Vec<(&'static str, OsString)> {
    let home = workspace.home();
    let root = workspace.root();
    let mut environment: Vec<(&str, OsString)> = vec![
        ("HOME", home.clone().into()),
        ("XDG_CONFIG_HOME", home.join(".config").into()),
        ("XDG_DATA_HOME", home.join(".local/share").into()),
        ("XDG_STATE_HOME", home.join(".local/state").into()),
        ("XDG_CACHE_HOME", home.join(".cache").into()),
        ("XDG_RUNTIME_DIR", root.join("run").into()),
        ("TMPDIR", root.join("tmp").into()),
        ("CONJURE_PLUGIN_PATH", workspace.plugins().into()),
        ("LANG", "C.UTF-8".into()),
        ("TZ", "UTC".into()),
        ("TERM", "dumb".into()),
        ("NO_COLOR", "1".into()),
    ];
    // The system's tools, and where a coverage build writes its figures.
    for name in ["PATH", "LLVM_PROFILE_FILE"] {
        environment.extend(std::env::var_os(name).map(|value| (name, value)));
    }
    environment
}
