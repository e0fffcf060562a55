//! The directory of data is the user's own, or nothing is done with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::stage::{conjure, workspace};

#[test]
fn nothing_is_done_with_a_directory_that_others_write_in() {
    let workspace = workspace(&[]);
    let dir = workspace.work().join("shared");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    for verb in [
        "thread list",
        "serve --listen 127.0.0.1:0",
        "skill list",
        "plugin list",
        "auth list",
        "routes",
        "doctor",
    ] {
        let output = conjure(&workspace, &format!("{verb} --data-dir shared"));
        let output = output.run().unwrap();
        assert_eq!(output.code, Some(2), "{verb}: {output:?}");
        assert!(
            output.stderr.contains("other users may write"),
            "{output:?}"
        );
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let named = conjure(&workspace, "thread list").env("CONJURE_DATA_DIR", &dir);
    assert_eq!(named.run().unwrap().code, Some(2));
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    let output = conjure(&workspace, "thread list --data-dir shared");
    assert_eq!(output.run().unwrap().code, Some(0));
}

#[test]
fn without_a_home_directory_nobody_elses_is_used() {
    let workspace = workspace(&[]);
    let shared = workspace.work().join("tmp");
    let planted = shared.join("conjure");
    fs::create_dir_all(&planted).unwrap();
    fs::set_permissions(&planted, Permissions::from_mode(0o777)).unwrap();
    let program = conjure_kit::conjure_bin().unwrap();
    let output = std::process::Command::new(program)
        .args(["skill", "list"])
        .env_clear()
        .env("TMPDIR", &shared)
        .current_dir(workspace.work())
        .output()
        .unwrap();
    // Either the system knows a home directory, or it is refused.
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
    assert_eq!(fs::read_dir(&planted).unwrap().count(), 0);
}
