//! The page of containers: the image is built from the reader's own Dockerfile, and a command runs in it.
//!
//! The reader's Dockerfile begins with the image of the tests, so nothing is pulled.

use conjure_kit::Engine;
use conjure_mock_llm::{Message, Script};
use serde_json::json;

use super::commands::{Place, commands};

const PAGE: &str = "conjure-host/docs/containers.md";
/// What the page's command builds.
const IMAGE: &str = "conjure-workspace";
const CALL: &str = "toolu_1";

/// The image of that name as it was before, or that there was none: it is so again when this is dropped.
struct EarlierImage {
    engine: Engine,
    id: Option<String>,
}

impl EarlierImage {
    fn new(engine: Engine) -> Self {
        let id = engine.docker(["image", "inspect", "--format", "{{.Id}}", IMAGE]);
        Self {
            engine,
            id: id.ok(),
        }
    }
}

impl Drop for EarlierImage {
    fn drop(&mut self) {
        let _ = match &self.id {
            Some(id) => self.engine.docker(["tag", id.as_str(), IMAGE]),
            None => self.engine.docker(["rmi", IMAGE]),
        };
    }
}

#[test]
fn containers() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let _earlier = EarlierImage::new(engine);
    let looks = json!({ "command": "ls", "description": "Looks around" });
    let script = Script::new()
        .reply(Message::new().tool_use(CALL, "docker_bash_tool", looks))
        .reply(Message::new().text("There is one file."));
    let place = Place::with_model(script);
    place
        .workspace
        .add_plugin("conjure-backend-docker")
        .unwrap();
    place.workspace.write("notes.txt", "Milk.\n").unwrap();
    let file = place.workspace.data_dir().join("docker/Dockerfile");
    let text = format!("FROM {}\n", engine.image());
    place.workspace.write(file, text).unwrap();
    for block in commands(PAGE) {
        for line in block.text.lines() {
            let command = line.strip_prefix("$ ").unwrap();
            let mut running = place.begin_at_terminal(command);
            if command.starts_with("conjure run ") {
                running.wait_for_stdout("Allow it?").unwrap();
                running.send_line("y").unwrap();
            }
            let output = running.wait().unwrap();
            assert_eq!(output.code, Some(0), "{line}\n{}", output.snapshot());
        }
    }
    let requests = place.model.requests();
    let mut results = requests
        .iter()
        .filter_map(|request| request.tool_result_text(CALL));
    let seen = results.next().unwrap();
    assert!(seen.contains("notes.txt"), "{seen}");
}
