//! Examples that plugins declare, and files of an executor whose code blocks.

use std::collections::BTreeMap;
use std::sync::Mutex;

use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, Example, FileRef, FilesGet, FilesPut, StrReplace, View, Viewed,
    Written,
};
use conjure_skill_sdk::testkit::{Plugin, TestHost, Transport};
use conjure_skill_sdk::{
    Blocking, BlockingExecutor, BlockingFiles, Cx, Error, ExecutorPlugin, Result, Skill,
};
use serde_json::json;

/// A machine that keeps files and runs nothing.
#[derive(Default)]
struct Shelf(Mutex<BTreeMap<String, Vec<u8>>>);

impl BlockingExecutor for Shelf {
    fn bash(&self, _cx: &Cx, _request: Bash) -> Result<BashOutput> {
        Err(Error::new("nothing is run here"))
    }

    fn view(&self, _cx: &Cx, request: View) -> Result<Viewed> {
        Err(Error::not_found(request.path))
    }

    fn create_file(&self, _cx: &Cx, request: CreateFile) -> Result<Written> {
        let text = request.file_text.unwrap_or_default();
        let mut files = self.0.lock().unwrap();
        let before = files.insert(request.path.clone(), text.into_bytes());
        Ok(Written {
            file: FileRef::lazy(&request.path, &request.path),
            replaced: before.is_some(),
        })
    }

    fn str_replace(&self, _cx: &Cx, request: StrReplace) -> Result<Written> {
        Err(Error::not_found(request.path))
    }
}

impl BlockingFiles for Shelf {
    fn put(&self, _cx: &Cx, request: FilesPut) -> Result<FileRef> {
        let bytes = std::fs::read(request.file.path.unwrap_or_default())?;
        let path = format!("/shelf/{}", request.file.name);
        self.0.lock().unwrap().insert(path.clone(), bytes);
        Ok(FileRef::at(path))
    }

    fn get(&self, _cx: &Cx, request: FilesGet) -> Result<FileRef> {
        let files = self.0.lock().unwrap();
        let bytes = files.get(&request.id);
        let bytes = bytes.ok_or_else(|| Error::not_found(&request.id))?;
        std::fs::write(&request.to, bytes)?;
        Ok(FileRef::at(request.to))
    }
}

fn shelf() -> ExecutorPlugin<Blocking<Shelf>> {
    ExecutorPlugin::new("shelf", "Keeps files", |_setup| {
        Ok(Blocking::new(Shelf::default()))
    })
    .with_files()
    .failing_example("bash_tool", json!({ "command": "ls" }), "nothing is run")
}

#[test]
fn files_of_an_executor_that_blocks_go_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (number, transport) in Transport::BOTH.into_iter().enumerate() {
        let host = TestHost::builder().transport(transport).build().unwrap();
        let plugin = host.link(shelf).unwrap();
        assert!(plugin.manifest().has("files.get/1"));
        let file = json!({ "path": "a.txt", "file_text": "made there" });
        let written: Written = plugin.call("executor.create_file", file).parse().unwrap();
        let to = path(&format!("fetched-{number}"));
        let get = json!({ "id": written.file.id, "to": to });
        let fetched: FileRef = plugin.call("files.get", get).parse().unwrap();
        assert_eq!(fetched.path.as_deref(), Some(to.as_str()));
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "made there");
        std::fs::write(path("mine.txt"), "made here").unwrap();
        let put = json!({ "file": FileRef::at(path("mine.txt")) });
        let there: FileRef = plugin.call("files.put", put).parse().unwrap();
        assert_eq!(there.path.as_deref(), Some("/shelf/mine.txt"));
        let missing = json!({ "id": "none", "to": path("none") });
        assert!(plugin.call("files.get", missing).reply.is_err());
    }
}

#[test]
fn examples_are_in_the_manifest_in_their_order_and_say_whether_they_fail() {
    let skill = || {
        Skill::new("notes", "Keeps notes")
            .example("add", json!({ "text": "milk" }), "noted")
            .failing_example("find", json!({ "text": "tea" }), "no note")
            .example("list", json!({}), "")
    };
    let plugin = Plugin::linked(skill).unwrap();
    let examples = &plugin.manifest().examples;
    let expected = [
        Example::new("add", json!({ "text": "milk" }), "noted"),
        Example::failing("find", json!({ "text": "tea" }), "no note"),
        Example::new("list", json!({}), ""),
    ];
    assert_eq!(*examples, expected);
    // What older hosts do not know is left out where it says nothing.
    let json = serde_json::to_value(examples).unwrap();
    assert_eq!(
        json,
        json!([
            { "tool": "add", "arguments": { "text": "milk" }, "result": "noted" },
            { "tool": "find", "arguments": { "text": "tea" }, "result": "no note", "is_error": true },
            { "tool": "list", "arguments": {} },
        ])
    );
    let plugin = Plugin::linked(shelf).unwrap();
    assert!(plugin.manifest().examples[0].is_error);
}
