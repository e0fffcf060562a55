//! The native skill of hosts that are killed: each call writes a line into a file of the working
//! directory, waits, and says so. So it is known from outside which calls ran, and how often.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use conjure_skill_sdk::protocol::Execute;
use conjure_skill_sdk::{Skill, export_skill};

/// The skill's name.
pub const NAME: &str = "notes";
/// The file, in the working directory.
pub const CALLS: &str = "calls";

/// The key in a command.
#[must_use]
pub fn key_of(command: &str) -> Option<&str> {
    let (_, rest) = command.split_once("key=")?;
    rest.split_once(';').map(|(key, _)| key)
}

/// The result of a call that was carried out.
#[must_use]
pub fn noted(key: &str) -> String {
    format!("noted {key}")
}

fn skill() -> Skill {
    Skill::new(NAME, "Notes what it is told").execute("key=KEY; MS", |cx, it: Execute| {
        let Some(key) = key_of(&it.command) else {
            return "there is no key in it".to_owned();
        };
        let Some(dir) = cx.working_dir() else {
            return "there is no working directory".to_owned();
        };
        if let Err(error) = append(&dir.join(CALLS), key) {
            return format!("it could not be noted: {error}");
        }
        let ms = it.command.rsplit(' ').next().and_then(|ms| ms.parse().ok());
        std::thread::sleep(Duration::from_millis(ms.unwrap_or_default()));
        noted(key)
    })
}

export_skill!(skill, name = "notes");

fn append(path: &Path, key: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    file.write_all(format!("{key}\n").as_bytes())
}
