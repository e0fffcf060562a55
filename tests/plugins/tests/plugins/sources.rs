//! The plugins that the tests build.

use std::path::PathBuf;

use conjure_plugin_tests::Plugin;

/// Answers `skill.execute` with its mark, which a test can change in the file, and counts.
pub const MARKED: &str = r#"
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
pub fn marked() -> PathBuf {
    Plugin::new("marked", MARKED).build()
}
