//! What the cases of the container backend need beside the usual stage: a real engine.

use std::path::PathBuf;

use conjure_host::session::BackendSpec;
use conjure_kit::{Engine, Workspace};
use serde_json::json;

use crate::stage::Stage;

/// The package of the container executor.
pub(crate) const DOCKER: &str = "conjure-backend-docker";

/// The engine, or nothing where there is none; then the test is left out, and says so.
pub(crate) fn engine() -> Option<Engine> {
    Engine::find().unwrap()
}

/// The container executor with these skill folders.
pub(crate) fn docker<S: Into<String>>(
    engine: Engine,
    skills: impl IntoIterator<Item = S>,
) -> BackendSpec {
    BackendSpec {
        config: Some(json!({ "image": engine.image() })),
        ..BackendSpec::docker(skills)
    }
}

/// The containers of all hosts that keep their data in a workspace.
pub(crate) fn containers(engine: Engine, workspace: &Workspace) -> Vec<String> {
    let root = workspace.root().display().to_string();
    let every = engine.docker([
        "ps",
        "-a",
        "--no-trunc",
        "--filter",
        "label=io.conjure.host",
        "--format",
        "{{.ID}} {{.Label \"io.conjure.host\"}}",
    ]);
    let every = every.unwrap();
    let own = every.lines().filter_map(|line| line.split_once(' '));
    own.filter(|(_, host)| host.starts_with(&root))
        .map(|(id, _)| id.to_owned())
        .collect()
}

/// A skill whose script says where it runs.
pub(crate) fn where_am_i(workspace: &Workspace, name: &str) -> PathBuf {
    let text = format!(
        "---\nname: {name}\ndescription: Says where it runs\n---\nRun `sh scripts/where.sh`.\n"
    );
    workspace
        .write(format!("skills/{name}/SKILL.md"), &text)
        .unwrap();
    let script =
        "if test -e /mnt/conjure/agent; then echo in a container; else echo on the host; fi\n";
    workspace
        .write(format!("skills/{name}/scripts/where.sh"), script)
        .unwrap();
    workspace.work().join("skills").join(name)
}

impl Stage {
    /// The path of a skill as a session names it.
    pub(crate) fn where_am_i(&self, name: &str) -> String {
        where_am_i(&self.workspace, name).display().to_string()
    }
}
