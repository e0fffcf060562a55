//! Tools that change what there is, so that clients hear of it, and one that is to be cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use conjure_skill_sdk::protocol::{Empty, List, Prompt, PromptText, Resource, ToolDecl};
use conjure_skill_sdk::{Cx, Error, Result, Skill, ToolOptions};
use serde_json::json;

/// The resource that clients watch.
const WATCHED: &str = "test://watched-resource";
const DYNAMIC_TOOL: &str = "test_dynamic_tool";
const DYNAMIC_PROMPT: &str = "test_dynamic_prompt";

/// Something that is there or not, in turns.
#[derive(Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn turn(&self, cx: &Cx, list: List) -> Result<&'static str> {
        let was = self.0.fetch_xor(true, Ordering::SeqCst);
        cx.catalog_changed(&[list])?;
        Ok(if was { "Taken away" } else { "Added" })
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// What there is now.
    fn list<T>(&self, what: impl FnOnce() -> T) -> Vec<T> {
        self.is_on().then(what).into_iter().collect()
    }
}

pub(crate) fn register(skill: Skill) -> Skill {
    let (tool, prompt) = (Switch::default(), Switch::default());
    let (tools, prompts, get) = (tool.clone(), prompt.clone(), prompt.clone());
    let version = Arc::new(AtomicU64::new(1));
    let next = Arc::clone(&version);
    // These change something, but only what this skill itself says.
    let options = || ToolOptions::new().stateless();
    let cancelled = Arc::new(AtomicU64::new(0));
    let cancellations = Arc::clone(&cancelled);
    skill
        .tool_with(
            "test_cancellation",
            "Waits until it is cancelled, for half a minute at the most",
            options().timeout_ms(30_000),
            move |cx, _: Empty| {
                cx.progress(0.0, None, "Waiting to be cancelled")?;
                while cx.check().is_ok() {
                    sleep(Duration::from_millis(5));
                }
                cancelled.fetch_add(1, Ordering::SeqCst);
                Err::<(), _>(Error::cancelled())
            },
        )
        .tool_with(
            "test_cancellations",
            "Says how many calls were cancelled",
            options(),
            move |_cx, _: Empty| cancellations.load(Ordering::SeqCst).to_string(),
        )
        .tool_with(
            "test_trigger_tool_change",
            "Adds a tool, or takes it away",
            options(),
            move |cx, _: Empty| tool.turn(cx, List::Tools),
        )
        .tool_with(
            "test_trigger_prompt_change",
            "Adds a prompt, or takes it away",
            options(),
            move |cx, _: Empty| prompt.turn(cx, List::Prompts),
        )
        .tool_with(
            "test_trigger_resource_update",
            "Changes the watched resource",
            options(),
            move |cx, _: Empty| {
                let version = next.fetch_add(1, Ordering::SeqCst) + 1;
                cx.resource_updated(WATCHED)?;
                Ok::<_, Error>(format!("Version {version}"))
            },
        )
        .run_time_tools(
            move |_cx| {
                let tool =
                    || ToolDecl::new(DYNAMIC_TOOL, "Comes and goes", json!({ "type": "object" }));
                Ok(tools.list(tool))
            },
            |_cx, _name, _arguments| "I am here now",
        )
        .run_time_prompts(
            move |_cx| {
                let prompt = || Prompt {
                    name: DYNAMIC_PROMPT.to_owned(),
                    description: Some("Comes and goes".to_owned()),
                    arguments: Vec::new(),
                    meta: None,
                };
                Ok(prompts.list(prompt))
            },
            move |_cx, name, _arguments| {
                if name == DYNAMIC_PROMPT && get.is_on() {
                    return Ok(PromptText::user("I am here now"));
                }
                Err(Error::not_found(format!("there is no prompt `{name}`")))
            },
        )
        .resource(
            Resource::new(WATCHED, "Watched resource")
                .description("A resource that changes when test_trigger_resource_update is called")
                .media_type("text/plain"),
            move |_cx| Ok(format!("Version {}", version.load(Ordering::SeqCst))),
        )
}
