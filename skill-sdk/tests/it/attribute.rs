//! Skills that are made with the attribute: the same as what the builder makes, through the ABI.

use std::sync::Mutex;

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::{Execute, Manifest, Read, StateScope, ToolDecl};
use conjure_skill_sdk::testkit::{Plugin, TestHost, Transport};
use conjure_skill_sdk::{Cx, Error, Json, Result, Setup, Skill, ToolOptions, skill};
use serde::Deserialize;
use serde_json::json;

/// A list, and what it was configured with.
struct Lines {
    most: usize,
    lines: Mutex<Vec<String>>,
}

/// Whom to greet.
#[derive(Deserialize, schemars::JsonSchema)]
struct Greet {
    /// The name
    name: String,
}

/// Keeps lines
///
/// In their order.
#[skill(name = "lines", shared)]
impl Lines {
    const NONE: &'static str = "no lines";

    #[create]
    fn new(setup: &Setup) -> Result<Self> {
        #[derive(Deserialize)]
        struct Config {
            most: usize,
        }
        let Config { most } = setup.config()?;
        Ok(Self {
            most,
            lines: Mutex::default(),
        })
    }

    /// Adds a line
    #[tool(title = "Add a line", timeout_ms = 900)]
    fn add(
        &self,
        cx: &Cx,
        /// What it says
        text: String,
        /// How often
        #[serde(default = "one")]
        #[schemars(range(min = 1))]
        r#times: u32,
        mut after: Option<usize>,
    ) -> Result<String> {
        cx.stdout(b"adding")?;
        let mut lines = self.lines.lock().map_err(|_| Error::new("broken"))?;
        let at = after.take().unwrap_or(lines.len());
        for _ in 0..times {
            lines.insert(at, text.clone());
        }
        match lines.len() > self.most {
            true => Err(Error::new("too many lines")),
            false => Ok(lines.join("/")),
        }
    }

    /// Greets somebody
    #[tool(name = "greet-somebody", read_only, stateless)]
    fn greet(&self, #[arguments] greet: Greet) -> String {
        format!("Hello, {}!", greet.name)
    }

    /// How many there are
    #[tool]
    fn r#loop(&self) -> Json<usize> {
        Json(self.lines.lock().map_or(0, |lines| lines.len()))
    }

    #[execute("clear")]
    fn clear(&self, cx: &Cx, request: Execute) -> Result<()> {
        assert_eq!(request.command, "clear");
        cx.check()?;
        self.lines.lock().map_err(|_| Error::new("broken"))?.clear();
        Ok(())
    }

    /// all: every line
    #[read]
    fn all(&self, _request: Read) -> String {
        match self.lines.lock().map(|lines| lines.join("\n")) {
            Ok(lines) if !lines.is_empty() => lines,
            _ => Self::NONE.to_owned(),
        }
    }

    /// Only where there are no pointers of 16 bits, which is everywhere here
    #[cfg(not(target_pointer_width = "16"))]
    #[tool]
    fn here(&self) {}

    /// Nowhere here
    #[cfg(target_pointer_width = "16")]
    #[tool]
    fn there(&self) {}
}

fn one() -> u32 {
    1
}

// The same arguments by hand. A doc comment would be part of the schema.
#[derive(Deserialize, schemars::JsonSchema)]
struct Add {
    /// What it says
    text: String,
    /// How often
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    times: u32,
    after: Option<usize>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A skill like the one that the attribute makes, built by hand.
fn by_hand() -> Skill {
    let options = ToolOptions::new().title("Add a line").timeout_ms(900);
    let free = ToolOptions::new().read_only().stateless();
    Skill::new("lines", "Keeps lines\n\nIn their order.")
        .shared()
        .tool_with("add", "Adds a line", options, |_, add: Add| {
            format!("{}{}{:?}", add.text, add.times, add.after)
        })
        .tool_with("greet-somebody", "Greets somebody", free, |_, _: Greet| ())
        .tool("loop", "How many there are", |_, _: Nothing| ())
        .execute("clear", |_, _| ())
        .read("all: every line", |_, _| ())
        .tool(
            "here",
            "Only where there are no pointers of 16 bits, which is everywhere here",
            |_, _: Nothing| (),
        )
}

fn manifest(skill: fn() -> Skill) -> Manifest {
    let host = TestHost::builder()
        .config(json!({ "most": 3 }))
        .build()
        .unwrap();
    host.link(skill).unwrap().manifest().clone()
}

#[test]
fn it_is_what_the_builder_makes() {
    let (made, by_hand) = (manifest(Lines::skill), manifest(by_hand));
    let names = |manifest: &Manifest| -> Vec<String> {
        let tools = manifest.tools.iter();
        tools.map(|tool: &ToolDecl| tool.name.clone()).collect()
    };
    let expected = ["add", "greet-somebody", "loop", "execute", "read", "here"];
    assert_eq!(names(&made), expected);
    assert_eq!(made.state, StateScope::Shared);
    let json = |manifest: &Manifest| serde_json::to_value(manifest).unwrap();
    // It makes its state when an instance is made; that is no capability.
    assert_eq!(json(&made), json(&by_hand));
}

#[test]
fn its_functions_are_called_through_the_boundary() {
    for transport in Transport::BOTH {
        let host = TestHost::builder().transport(transport);
        let host = host.config(json!({ "most": 3 })).build().unwrap();
        let plugin = host.link(Lines::skill).unwrap();
        let call = |op: &str, body| plugin.call(op, body);
        let added = call("skill.tool.add", json!({ "text": "one" }));
        assert_eq!(
            (added.text().as_str(), &added.stdout[..]),
            ("one", &b"adding"[..])
        );
        let added = call(
            "skill.tool.add",
            json!({ "text": "two", "times": 2, "after": 0 }),
        );
        assert_eq!(added.text(), "two/two/one");
        let greeted = call("skill.tool.greet-somebody", json!({ "name": "Ada" }));
        assert_eq!(greeted.text(), "Hello, Ada!");
        assert_eq!(call("skill.tool.loop", json!({})).text(), "3");
        assert_eq!(
            call("skill.read", json!({ "path": "all" })).text(),
            "two\ntwo\none"
        );
        let full = call("skill.tool.add", json!({ "text": "four" }));
        assert!(full.result().unwrap().is_error, "{full:?}");
        assert_eq!(full.text(), "too many lines");
        // What does not fit does not arrive.
        let misfit = call("skill.tool.add", json!({ "times": 2 }));
        assert!(misfit.result().unwrap().is_error && misfit.text().contains("`text`"));
        assert!(
            call("skill.execute", json!({ "command": "clear" }))
                .result()
                .is_ok()
        );
        assert_eq!(
            call("skill.read", json!({ "path": "all" })).text(),
            "no lines"
        );
        assert!(call("skill.tool.here", json!({})).result().is_ok());
        let fault = call("skill.tool.there", json!({})).reply.unwrap_err();
        assert_eq!(fault.code(), code::NOT_FOUND);
    }
}

#[test]
fn an_error_of_what_makes_the_state_refuses_the_instance() {
    let host = TestHost::builder()
        .config(json!({ "most": "many" }))
        .build()
        .unwrap();
    let error = host.link(Lines::skill).err().unwrap();
    assert!(
        error.message().contains("the configuration does not fit"),
        "{error}"
    );
}

/// One that makes itself.
#[derive(Default)]
struct Counter(Mutex<u32>);

/// Counts
#[skill(name = "counter")]
impl Counter {
    /// One more
    #[tool]
    fn more(&self) -> Result<String> {
        let mut count = self.0.lock().map_err(|_| Error::new("broken"))?;
        *count += 1;
        Ok(count.to_string())
    }
}

#[test]
fn each_instance_has_a_state_of_its_own_which_is_the_default() {
    let (one, other) = (
        Plugin::linked(Counter::skill),
        Plugin::linked(Counter::skill),
    );
    let (one, other) = (one.unwrap(), other.unwrap());
    let more = |plugin: &Plugin| plugin.call("skill.tool.more", json!({})).text();
    assert_eq!(
        (more(&one), more(&one), more(&other)),
        ("1".to_owned(), "2".to_owned(), "1".to_owned())
    );
}
