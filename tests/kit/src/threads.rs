//! The threads of a workspace, as the program itself tells them.

use serde_json::Value;

use crate::{KitError, Workspace, cli};

/// The ids of all threads, the newest first.
///
/// # Errors
/// When the program fails or says something else than a list.
pub fn thread_ids(workspace: &Workspace) -> Result<Vec<String>, KitError> {
    let listed = cli(["thread", "list", "--json"])
        .workspace(workspace)
        .run()?;
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    let threads = listed.get("threads").and_then(Value::as_array);
    let threads = threads.into_iter().flatten();
    Ok(threads
        .filter_map(|thread| Some(thread.get("id")?.as_str()?.to_owned()))
        .collect())
}

/// What a thread holds, as lines of JSON, one record a line.
///
/// # Errors
/// When the program fails.
pub fn thread_log(workspace: &Workspace, thread: &str) -> Result<String, KitError> {
    let exported = cli(["thread", "export", thread])
        .workspace(workspace)
        .run()?;
    Ok(exported.stdout)
}
