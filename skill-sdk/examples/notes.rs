//! A native skill with typed tools and state that outlives an upgrade.
//!
//! `cargo run -p conjure-skill-sdk --features testkit --example notes` calls it as a host would,
//! through the real ABI. In a crate of its own, what stands above `main` is a whole plugin.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::{Arc, Mutex, PoisonError};

use conjure_skill_sdk::protocol::State;
use conjure_skill_sdk::testkit::Plugin;
use conjure_skill_sdk::{Error, Json, Result, Skill, ToolOptions, export_skill};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// What to write down.
#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The note: one line.
    text: String,
}

/// What to look for.
#[derive(Deserialize, JsonSchema)]
struct Find {
    /// A word that the notes have; without it, all of them.
    #[serde(default)]
    word: String,
}

/// The notes of one session: a host makes one instance for each.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn with<T>(&self, run: impl FnOnce(&mut Vec<String>) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the model reads of an error says how to go on.
    fn add(&self, text: String) -> Result<String> {
        if text.trim().is_empty() {
            return Err(Error::invalid("the note is empty: write what it says"));
        }
        let number = self.with(|notes| {
            notes.push(text);
            notes.len()
        });
        Ok(format!("note {number} is written down"))
    }

    fn find(&self, word: &str) -> Vec<String> {
        let fits = |note: &&String| note.contains(word);
        self.with(|notes| notes.iter().filter(fits).cloned().collect())
    }
}

fn skill() -> Skill {
    let notes = Notes::default();
    let (adding, finding) = (notes.clone(), notes.clone());
    let (exporting, importing) = (notes.clone(), notes);
    Skill::new("notes", "Keeps notes for as long as the session lives")
        .tool("add", "Writes a note down", move |_cx, add: Add| {
            adding.add(add.text)
        })
        .tool_with(
            "find",
            "Finds notes by a word in them",
            ToolOptions::new().read_only(),
            move |_cx, find: Find| Json(finding.find(&find.word)),
        )
        // A host that loads a newer version of the plugin hands the state of each session over.
        .upgrade(
            move |_cx| Ok(exporting.with(|notes| json!(notes))),
            move |_cx, state: State| {
                let old = serde_json::from_value(state.state)?;
                importing.with(|notes| *notes = old);
                Ok(())
            },
        )
}

export_skill!(skill, name = "notes");

fn main() -> Result<()> {
    let plugin = Plugin::linked(skill)?;
    let tools = plugin.manifest().tools.iter();
    let tools: Vec<&str> = tools.map(|tool| tool.name.as_str()).collect();
    println!("tools: {}", tools.join(", "));
    for text in ["buy tea", "call Ada", ""] {
        let added = plugin.call("skill.tool.add", json!({ "text": text }));
        println!("add {text:?}: {}", added.text());
    }
    let found = plugin.call("skill.tool.find", json!({ "word": "tea" }));
    println!("find \"tea\": {}", found.text());

    let newer = Plugin::linked(skill)?;
    let state = plugin.call("state.export", json!({})).reply?;
    newer.call("state.import", state).reply?;
    let found = newer.call("skill.tool.find", json!({}));
    println!("after an upgrade: {}", found.text());
    Ok(())
}
