//! A backend: tools of its own for many sessions, one of which asks the person.
//!
//! `cargo run -p conjure-skill-sdk --features testkit --example rooms_backend` drives it without a
//! host; a function answers for the person.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, Effects, Elicit, Elicited, Open, ToolDecl, ToolResult,
};
use conjure_skill_sdk::testkit::{Plugin, TestHost};
use conjure_skill_sdk::{Backend, BackendPlugin, Cx, Error, Result, export_backend};
use serde_json::json;

/// Rooms by name, with the person who has each. All sessions book the same rooms.
#[derive(Default)]
struct Rooms {
    booked: Mutex<BTreeMap<String, String>>,
}

impl Rooms {
    fn with<T>(&self, run: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        run(&mut self.booked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn book(&self, cx: &Cx, room: &str) -> Result<ToolResult> {
        if self.with(|booked| booked.contains_key(room)) {
            return Ok(ToolResult::error(format!(
                "{room} is taken: ask for another room"
            )));
        }
        let question = Elicit {
            message: format!("Book {room}?"),
            ..Elicit::default()
        };
        // Waiting for a person stops the call's clock.
        let answer = cx.elicit_async(&question).await?;
        if answer.action != "accept" {
            return Ok(ToolResult::error(
                "the person said no: ask which room to book",
            ));
        }
        let session = cx.session().unwrap_or_default().to_owned();
        self.with(|booked| booked.insert(room.to_owned(), session));
        Ok(ToolResult::text(format!("{room} is booked")))
    }
}

impl Backend for Rooms {
    async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
        Ok(())
    }

    async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
        let book = json!({
            "type": "object",
            "properties": { "room": { "type": "string", "description": "Its name" } },
            "required": ["room"],
        });
        let list = json!({ "type": "object", "properties": {} });
        Ok(CatalogReply {
            tools: vec![
                ToolDecl {
                    effects: Effects::Write,
                    ..ToolDecl::new("book", "Books a room", book)
                },
                ToolDecl {
                    effects: Effects::Read,
                    ..ToolDecl::new("list", "Lists the rooms that are booked", list)
                },
            ],
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        match request.name.as_str() {
            "book" => {
                let room = request.arguments.get("room").and_then(|room| room.as_str());
                let missing = || Error::invalid("`room` is missing: name one");
                self.book(&cx, room.ok_or_else(missing)?).await
            }
            "list" => Ok(ToolResult::json(self.with(|booked| json!(booked)))),
            other => Err(Error::not_found(format!("there is no tool `{other}`"))),
        }
    }

    async fn close(&self, _cx: Cx) -> Result<()> {
        Ok(())
    }
}

fn plugin() -> BackendPlugin<Rooms> {
    BackendPlugin::new("rooms", "Books rooms", |_setup| Ok(Rooms::default())).requires("elicit/1")
}

export_backend!(plugin, name = "rooms");

/// Books everything but the attic.
fn person(question: &Elicit) -> Elicited {
    let action = match question.message.contains("attic") {
        true => "decline",
        false => "accept",
    };
    println!("  the person is asked {:?}: {action}", question.message);
    Elicited {
        action: action.to_owned(),
        content: BTreeMap::new(),
    }
}

fn book(plugin: &Plugin, session: &str, room: &str) {
    let call = json!({ "name": "book", "arguments": { "room": room } });
    let outcome = plugin.session(session).call("backend.call", call);
    println!("{session} books {room}: {}", outcome.text());
}

fn main() -> Result<()> {
    let host = TestHost::builder()
        .elicit(|question| person(&question))
        .build()?;
    let plugin = host.link(plugin)?;
    for session in ["monday", "tuesday"] {
        plugin
            .session(session)
            .call("backend.open", json!({}))
            .reply?;
    }
    let catalog: CatalogReply = plugin.call("backend.catalog", json!({})).parse()?;
    for tool in &catalog.tools {
        println!("tool {}: {}", tool.name, tool.description);
    }
    book(&plugin, "monday", "the library");
    book(&plugin, "monday", "the attic");
    book(&plugin, "tuesday", "the library");
    let list = json!({ "name": "list", "arguments": {} });
    println!("booked: {}", plugin.call("backend.call", list).text());
    Ok(())
}
