//! A backend plugin that makes files in both ways that a backend has: with its calls, and by what
//! a provider's reply says was made elsewhere.

use std::fs;

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Contribute, Contribution, FileRef, FilesGet, FilesPut, Observation,
    Observe, Open, ToolDecl, ToolResult,
};
use conjure_skill_sdk::{Backend, BackendPlugin, Contributes, Cx, Error, Files, Result};
use serde_json::{Value, json};

/// Name of the backend.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// Something to link into a host.
pub(crate) fn elsewhere() -> BackendPlugin<Elsewhere> {
    BackendPlugin::new(ELSEWHERE, "Makes files elsewhere", |_setup| Ok(Elsewhere))
        .with_contributions()
        .with_files_of_calls()
}

/// What a provider tells of a tool that it ran itself and that made a file.
pub(crate) fn server_result(call: &str, file_id: &str) -> Value {
    json!({
        "type": "code_execution_tool_result",
        "tool_use_id": call,
        "content": {
            "type": "code_execution_result",
            "stdout": "",
            "stderr": "",
            "return_code": 0,
            "content": [{ "type": "code_execution_output", "file_id": file_id }],
        },
    })
}

/// One tool, `make`: a file in the working directory and one that stays where it was made.
pub(crate) struct Elsewhere;

impl Backend for Elsewhere {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let tool = ToolDecl::new("make", "Makes files", json!({ "type": "object" }));
        Ok(CatalogReply {
            tools: vec![tool],
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, _request: BackendCall) -> Result<ToolResult> {
        let dir = cx
            .working_dir()
            .ok_or_else(|| Error::new("there is no working directory"))?;
        let path = dir.join("by-the-backend.txt");
        fs::write(&path, "made")?;
        Ok(ToolResult::text("made")
            .with_file(FileRef::at(path.display().to_string()))
            .with_file(FileRef::lazy("far-1", "kept-there.txt")))
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

impl Contributes for Elsewhere {
    async fn contribute(&self, _cx: Cx, _request: Contribute) -> Result<Contribution> {
        Ok(Contribution::default())
    }

    async fn observe(&self, _cx: Cx, request: Observe) -> Result<Observation> {
        let files = request
            .server_items
            .iter()
            .filter_map(|item| item["content"]["content"].as_array())
            .flatten()
            .filter_map(|output| output["file_id"].as_str())
            .map(|id| FileRef::lazy(id, format!("{id}.txt")))
            .collect();
        Ok(Observation {
            files,
            ..Observation::default()
        })
    }
}

impl Files for Elsewhere {
    async fn put(&self, _cx: Cx, request: FilesPut) -> Result<FileRef> {
        Ok(request.file)
    }

    async fn get(&self, _cx: Cx, request: FilesGet) -> Result<FileRef> {
        fs::write(&request.to, format!("content of {}", request.id))?;
        Ok(FileRef::at(request.to))
    }
}
