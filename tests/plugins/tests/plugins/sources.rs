//! The plugins that the tests build.

use std::path::PathBuf;

use conjure_plugin_tests::Plugin;

/// Answers `skill.execute` with its mark, which a test can change in the file, and counts.
pub(crate) const MARKED: &str = r#"
use std::sync::atomic::{AtomicU64, Ordering};
use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{export_skill, Skill};

#[no_mangle]
pub static CONJURE_TEST_MARK: [u8; 16] = *b"mark:00000000000";

fn mark() -> String {
    let mark = unsafe { std::ptr::read_volatile(&CONJURE_TEST_MARK) };
    String::from_utf8_lossy(&mark).into_owned()
}

fn skill() -> Skill {
    let count = AtomicU64::new(0);
    Skill::new("marked", "Says which version it is").execute(
        "mark | count | panic",
        move |_cx, c: Execute| match c.command.as_str() {
            "count" => (count.fetch_add(1, Ordering::SeqCst) + 1).to_string(),
            "panic" => panic!("as asked"),
            _ => mark(),
        },
    )
}

export_skill!(skill, name = "marked");
"#;

/// The marked skill.
pub(crate) fn marked() -> PathBuf {
    Plugin::new("marked", MARKED).build()
}

/// The marked skill with a constructor that writes the file which the environment names.
fn with_constructor() -> String {
    let marked = MARKED.replace("    let count", "    hang(\"manifest\");\n    let count");
    format!(
        "{marked}
extern \"C\" fn constructor() {{
    if let Some(path) = std::env::var_os(\"CONJURE_TEST_CONSTRUCTOR\") {{
        let _ = std::fs::write(path, \"ran\");
    }}
    hang(\"constructor\");
}}

fn hang(place: &str) {{
    while std::env::var(\"CONJURE_TEST_HANG\").as_deref() == Ok(place) {{
        std::thread::sleep(std::time::Duration::from_secs(1));
    }}
}}

#[used]
#[cfg_attr(target_os = \"macos\", link_section = \"__DATA,__mod_init_func\")]
#[cfg_attr(not(target_os = \"macos\"), link_section = \".init_array\")]
static CONSTRUCTOR: extern \"C\" fn() = constructor;
"
    )
}

/// A plugin with a constructor.
pub(crate) fn constructing() -> PathBuf {
    Plugin::new("constructing", &with_constructor()).build()
}

/// A plugin with a constructor, built with `panic = "abort"`.
pub(crate) fn aborting() -> PathBuf {
    Plugin {
        profile: "debug = false\nstrip = true\nincremental = false\npanic = \"abort\"\n",
        ..Plugin::new("aborting", &with_constructor())
    }
    .build()
}

/// A library of another kind: plain C, with a constructor, and with a section that has the name
/// of ours when `section` says so.
pub(crate) fn foreign(dir: &std::path::Path, section: bool) -> PathBuf {
    let source = dir.join("foreign.c");
    let library = dir.join(if section {
        "libsection.so"
    } else {
        "libforeign.so"
    });
    let text = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void constructor(void) {
    const char *path = getenv("CONJURE_TEST_CONSTRUCTOR");
    if (path) { FILE *f = fopen(path, "w"); if (f) fclose(f); }
}
int answer(void) { return 42; }
"#;
    let extra = r#"
__attribute__((section(".conjure"), used)) char header[400] = "CONJURE?";
int conjure_root_v1 = 1;
"#;
    std::fs::write(
        &source,
        format!("{text}{}", if section { extra } else { "" }),
    )
    .unwrap();
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    library
}
