//! The files that a command made, as a reply tells of them.

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::{FileRef, PluginEvent};

use super::{CommandOutput, OutputRelay};

/// How many bytes of JSON the reply's list of files may take; more files go as events.
const FILES_BUDGET: usize = 6 * 1024;

/// The files for the reply. Those that it has no room for are handed over as events.
pub async fn first_files(files: Vec<FileRef>, cx: &Cx) -> Vec<FileRef> {
    let mut room = FILES_BUDGET;
    let mut first = Vec::new();
    for file in files {
        let size = serde_json::to_vec(&file).map_or(0, |json| json.len() + 1);
        if size <= room {
            room -= size;
            first.push(file);
        } else if cx.event_async(&PluginEvent::File { file }).await.is_err() {
            break;
        }
    }
    first
}

/// Tells a person what of a command's output and files is nowhere: output beyond what a file
/// holds, files beyond those that were looked at (`cut`), and so many with names that are not
/// UTF-8 (`unnamed`).
pub fn report_missing(live: &OutputRelay, kept: &CommandOutput, cut: bool, unnamed: u64) {
    if kept.discarded > 0 {
        live.notice(
            "warn",
            format!("{} bytes of output were discarded", kept.discarded),
        );
    }
    if cut {
        live.notice(
            "info",
            "the working directory has too many files: some that the command made may not be \
             listed"
                .to_owned(),
        );
    }
    if unnamed > 0 {
        live.notice(
            "warn",
            format!(
                "{unnamed} files that the command made have names that are not UTF-8 and are not \
                 listed"
            ),
        );
    }
}
